#include "properties/subjects/engine_data.h"

#include <bit>
#include <catch2/catch_test_macros.hpp>
#include <limits>
#include <set>

#include "properties/case/json.h"

namespace rematch {
namespace {

template <class T>
std::span<std::byte> bytes_of(std::vector<T>& values) {
  return std::as_writable_bytes(std::span(values));
}

}  // namespace

TEST_CASE("tokens are integers below the vocabulary, whatever the dtype of the case") {
  Case c = case_from_json(R"({"format": 1, "seed": 3, "input": [40, 5], "layers": [
      {"kind": "embedding", "features": 2, "vocabulary": 7}]})");
  Generator single{c.seed, kInputStream, 0};
  const Tensor tokens = make_input(c, single);
  CHECK(tokens.dtype() == DType::int32);
  CHECK(tokens.shape() == Shape{40, 5});
  std::set<double> seen;
  for (const double token : tokens.to_vector()) seen.insert(token);
  CHECK(seen == std::set<double>{0, 1, 2, 3, 4, 5, 6});
  c.dtype = DType::float64;
  Generator other{c.seed, kInputStream, 0};
  CHECK(make_input(c, other).to_vector() == tokens.to_vector());
  CHECK(converted(tokens, DType::float64).dtype() == DType::int32);
}

TEST_CASE("all NaNs of a record have the same bits, and no other value changes") {
  const float inf = std::numeric_limits<float>::infinity();
  std::vector<float> f{
      std::bit_cast<float>(0xffc00000U), std::bit_cast<float>(0x7fc12345U), -0.0F, inf, -inf, 1.5F};
  canonical_nans(bytes_of(f), sizeof(float));
  CHECK(std::bit_cast<std::uint32_t>(f[0]) == 0x7fc00000U);
  CHECK(std::bit_cast<std::uint32_t>(f[1]) == 0x7fc00000U);
  CHECK(std::bit_cast<std::uint32_t>(f[2]) == 0x80000000U);
  CHECK(f[3] == inf);
  CHECK(f[4] == -inf);
  CHECK(f[5] == 1.5F);

  std::vector<double> d{std::bit_cast<double>(0xfff8000000000001U), -0.0};
  canonical_nans(bytes_of(d), sizeof(double));
  CHECK(std::bit_cast<std::uint64_t>(d[0]) == 0x7ff8000000000000U);
  CHECK(std::bit_cast<std::uint64_t>(d[1]) == 0x8000000000000000U);

  std::vector<std::uint8_t> mask(8, 0xff);
  canonical_nans(bytes_of(mask), 1);
  CHECK(mask == std::vector<std::uint8_t>(8, 0xff));
}

}  // namespace rematch
