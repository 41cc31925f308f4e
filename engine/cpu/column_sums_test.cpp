#include <catch2/catch_test_macros.hpp>
#include <utility>

#include "engine/cpu/testing/values.h"
#include "engine/kernels/layer_norm.h"

namespace rematch::cpu {
namespace {

using testing::values;

TEST_CASE("sums down a column add 128 rows at a time, and those sums in double") {
  constexpr std::int64_t kRows = 300;
  constexpr std::int64_t kCols = 70;
  const auto gy = values<float>(kRows * kCols, 1);
  const auto x = values<float>(kRows * kCols, 2);
  const std::vector<float> mean(kRows, 0.25F);
  const std::vector<float> rstd(kRows, 1.5F);
  std::vector<float> gw(kCols);
  std::vector<float> gb(kCols);
  layer_norm_backward<float>(kRows, kCols, gy.data(), x.data(), mean.data(), rstd.data(), nullptr,
                             nullptr, gw.data(), gb.data());
  std::size_t differs_from_plain_sum = 0;
  for (std::size_t j = 0; j < kCols; ++j) {
    double total = 0;
    float plain = 0;
    for (const auto& [first, last] : {std::pair{0, 128}, {128, 256}, {256, 300}}) {
      float chunk = 0;
      for (int r = first; r < last; ++r) {
        chunk += gy[static_cast<std::size_t>(r) * kCols + j];
        plain += gy[static_cast<std::size_t>(r) * kCols + j];
      }
      total += static_cast<double>(chunk);
    }
    CHECK(gb[j] == static_cast<float>(total));
    // With a constant mean and scale gw is the same sum of other terms.
    double weighted = 0;
    for (const auto& [first, last] : {std::pair{0, 128}, {128, 256}, {256, 300}}) {
      float chunk = 0;
      for (int r = first; r < last; ++r) {
        const std::size_t at = static_cast<std::size_t>(r) * kCols + j;
        chunk += gy[at] * ((x[at] - 0.25F) * 1.5F);
      }
      weighted += static_cast<double>(chunk);
    }
    CHECK(gw[j] == static_cast<float>(weighted));
    differs_from_plain_sum += gb[j] != plain ? 1 : 0;
  }
  // Else the order would not show.
  CHECK(differs_from_plain_sum > 0);
}

}  // namespace
}  // namespace rematch::cpu
