#include "properties/record/direction.h"

#include "engine/random/philox.h"

namespace rematch {

std::vector<double> direction(std::uint64_t seed, std::uint64_t array, std::int64_t elements) {
  // Streams of their own, far from those of the data (case_data.h).
  const PhiloxStream stream{seed, (std::uint64_t{1} << 33) + array};
  std::vector<double> values(static_cast<std::size_t>(elements));
  std::uint32_t words[4] = {};
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i % 4 == 0) stream.block(i / 4, words);
    values[i] = 2 * uniform_double(words[i % 4]) - 1;
  }
  return values;
}

}  // namespace rematch
