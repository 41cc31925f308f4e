#include "engine/kernels/pool2d.h"

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>

#include "engine/cpu/testing/values.h"

namespace rematch::cpu {
namespace {

using namespace testing;

// n, c, h, w, kh, kw, strides, paddings: short rows, long rows, and the halving special case.
constexpr Pool2dShape kShapes[] = {
    {2, 3, 8, 8, 2, 2, 2, 2, 0, 0},  {1, 2, 9, 7, 2, 2, 2, 2, 0, 0},
    {2, 2, 8, 8, 3, 3, 1, 1, 1, 1},  {1, 2, 7, 40, 3, 2, 2, 1, 1, 1},
    {1, 1, 9, 50, 4, 5, 3, 2, 2, 2}, {2, 1, 20, 61, 3, 3, 1, 3, 0, 1},
    {1, 2, 1, 1, 1, 1, 1, 1, 0, 0},  {1, 1, 5, 33, 2, 2, 2, 2, 1, 1},
    {2, 2, 6, 6, 6, 6, 1, 1, 0, 0},
};

/// Calls visit(output, plane start in x, row, column) for each pixel of each window, row-major.
template <typename Visit>
void for_each_pixel(const Pool2dShape& s, const Visit& visit) {
  std::size_t out = 0;
  for (std::int64_t p = 0; p < s.n * s.c; ++p) {
    for (std::int64_t i = 0; i < s.out_h(); ++i) {
      for (std::int64_t j = 0; j < s.out_w(); ++j, ++out) {
        for (std::int64_t t = 0; t < s.kh * s.kw; ++t) {
          const std::int64_t row = i * s.stride_h + t / s.kw - s.pad_h;
          const std::int64_t col = j * s.stride_w + t % s.kw - s.pad_w;
          if (row < 0 || row >= s.h || col < 0 || col >= s.w) continue;
          visit(out, p * s.h * s.w, row * s.w + col);
        }
      }
    }
  }
}

template <typename T>
void check_pools() {
  for (const Pool2dShape& s : kShapes) {
    CAPTURE(s.n, s.c, s.h, s.w, s.kh, s.kw, s.stride_h, s.stride_w, s.pad_h, s.pad_w);
    const auto outputs = static_cast<std::size_t>(s.n * s.c * s.out_h() * s.out_w());
    auto x = values<T>(s.n * s.c * s.h * s.w, 1);
    // Few distinct values, so that ties abound, and a NaN now and then.
    for (T& v : x) v = std::round(v * 4);
    for (std::size_t i = 13; i < x.size(); i += 29) x[i] = std::numeric_limits<T>::quiet_NaN();
    const auto finite = values<T>(s.n * s.c * s.h * s.w, 3);
    const auto gy = values<T>(static_cast<std::int64_t>(outputs), 2);
    const T area = static_cast<T>(s.kh * s.kw);

    std::vector<T> maxima(outputs);
    std::vector<std::int32_t> where(outputs, -1);
    std::vector<T> means(outputs);
    std::vector<T> mean_gx(x.size());
    for_each_pixel(s, [&](std::size_t out, std::int64_t plane, std::int64_t pixel) {
      const auto at = static_cast<std::size_t>(plane + pixel);
      if (where[out] < 0 || x[at] > maxima[out] || std::isnan(x[at])) {
        maxima[out] = x[at];
        where[out] = static_cast<std::int32_t>(pixel);
      }
      means[out] += finite[at];
      mean_gx[at] += gy[out] / area;
    });
    for (T& mean : means) mean /= area;
    std::vector<T> max_gx(x.size());
    const std::size_t plane = outputs / static_cast<std::size_t>(s.n * s.c);
    for (std::size_t out = 0; out < outputs; ++out) {
      const std::size_t start = out / plane * static_cast<std::size_t>(s.h * s.w);
      max_gx[start + static_cast<std::size_t>(where[out])] += gy[out];
    }

    std::vector<T> y(outputs);
    std::vector<std::int32_t> indices(outputs);
    std::vector<T> gx(x.size(), T(9));
    max_pool2d_forward(s, x.data(), y.data(), indices.data());
    CHECK(indices == where);
    std::size_t differing = 0;
    for (std::size_t i = 0; i < outputs; ++i) {
      if (!(y[i] == maxima[i] || (std::isnan(y[i]) && std::isnan(maxima[i])))) ++differing;
    }
    CHECK(differing == 0);
    max_pool2d_backward(s, gy.data(), indices.data(), gx.data());
    CHECK(same_bits(gx, max_gx));
    avg_pool2d_forward(s, finite.data(), y.data());
    CHECK(same_bits(y, means));
    gx.assign(gx.size(), T(9));
    avg_pool2d_backward(s, gy.data(), gx.data());
    CHECK(same_bits(gx, mean_gx));
  }
}

TEST_CASE("pools equal the loop over windows bit for bit, ties and NaN included") {
  check_pools<float>();
  check_pools<double>();
}

TEST_CASE("the first of equal maxima takes the whole gradient") {
  const Pool2dShape s{1, 1, 2, 2, 2, 2, 2, 2, 0, 0};
  const std::vector<float> x{3, 5, 5, 5};
  const std::vector<float> gy{7};
  float y = 0;
  std::int32_t index = 0;
  std::vector<float> gx(4);
  max_pool2d_forward(s, x.data(), &y, &index);
  max_pool2d_backward(s, gy.data(), &index, gx.data());
  CHECK(y == 5);
  CHECK(index == 1);
  CHECK(gx == std::vector<float>{0, 7, 0, 0});
}

}  // namespace
}  // namespace rematch::cpu
