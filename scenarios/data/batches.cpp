#include "scenarios/data/batches.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>

#include "engine/random/philox.h"

namespace rematch::scenarios {
namespace {

constexpr std::int64_t kSide = 32;

/// Where an output pixel lies between two input pixels, in units of 1 / (2 * kSide): integers, so
/// that the weights are exact.
struct Tap {
  std::int64_t first;
  std::int64_t second;
  std::int64_t weight_of_second;
};
constexpr std::int64_t kUnit = 2 * kSide;

Tap tap(std::int64_t out, std::int64_t side) {
  // (out + 1/2) * side / kSide - 1/2, never before the first pixel's centre.
  const std::int64_t at = std::max<std::int64_t>((2 * out + 1) * side - kSide, 0);
  const std::int64_t first = at / kUnit;
  return {first, std::min(first + 1, side - 1), at % kUnit};
}

void enlarge(const std::uint8_t* in, std::int64_t side, std::span<const Tap> taps, float* out) {
  for (const Tap& y : taps) {
    for (const Tap& x : taps) {
      const auto row = [&](std::int64_t r) {
        const std::uint8_t* line = in + r * side;
        return (kUnit - x.weight_of_second) * line[x.first] + x.weight_of_second * line[x.second];
      };
      const std::int64_t sum =
          (kUnit - y.weight_of_second) * row(y.first) + y.weight_of_second * row(y.second);
      *out++ = static_cast<float>(static_cast<double>(sum) / (127.5 * kUnit * kUnit) - 1.0);
    }
  }
}

}  // namespace

Batch make_batch(const Pictures& pictures, std::span<const std::int64_t> numbers) {
  const std::int64_t side = pictures.height;
  const std::int64_t channels = pictures.channels;
  if (pictures.width != side || side < 1 || side > kSide || (channels != 1 && channels != 3)) {
    throw std::invalid_argument(
        "[make_batch] square pictures of 1 or 3 channels and at most 32 x "
        "32 pixels expected, got " +
        to_string(Shape{channels, side, pictures.width}));
  }
  std::vector<Tap> taps;
  for (std::int64_t i = 0; i < kSide; ++i) taps.push_back(tap(i, side));
  const auto count = static_cast<std::int64_t>(numbers.size());
  Batch batch{Tensor::empty({count, 3, kSide, kSide}, DType::float32, Tag::inputs),
              Tensor::empty({count}, DType::int32, Tag::inputs)};
  auto* out = batch.pictures.data<float>();
  auto* label = batch.labels.data<std::int32_t>();
  constexpr std::int64_t kPlane = kSide * kSide;
  for (const std::int64_t number : numbers) {
    if (number < 0 || number >= pictures.count()) {
      throw std::invalid_argument("[make_batch] picture " + std::to_string(number) +
                                  " asked for, there are " + std::to_string(pictures.count()));
    }
    *label++ = pictures.labels[static_cast<std::size_t>(number)];
    const std::uint8_t* in = pictures.values.data() + number * pictures.bytes_each();
    for (std::int64_t c = 0; c < channels; ++c) {
      enlarge(in + c * side * side, side, taps, out + c * kPlane);
    }
    for (std::int64_t c = channels; c < 3; ++c) std::copy_n(out, kPlane, out + c * kPlane);
    out += 3 * kPlane;
  }
  return batch;
}

std::vector<std::int64_t> shuffled(std::int64_t count, Generator& generator) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  const PhiloxStream stream{generator.seed, generator.stream};
  std::uint64_t word = generator.draw(count);
  for (std::size_t left = order.size(); left > 1; --left) {
    // The upper half of the product: below `left`, and even to within left / 2^32.
    const std::uint64_t pick = (std::uint64_t{stream.word(word++)} * left) >> 32;
    std::swap(order[left - 1], order[pick]);
  }
  return order;
}

}  // namespace rematch::scenarios
