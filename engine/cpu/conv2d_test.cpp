#include "engine/kernels/conv2d.h"

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>

#include "engine/cpu/testing/convolutions.h"
#include "engine/cpu/testing/values.h"
#include "engine/cpu/testing/vectors.h"

namespace rematch::cpu {
namespace {

using namespace testing;

template <typename T>
struct Convolved {
  std::vector<double> y;
  std::vector<double> gx;
  std::vector<double> gw;
  std::vector<double> gb;
  // Bit for bit what the contracts promise: chains over (c, kh, kw) from the bias, and over up to
  // 128 outputs in whole rows.
  std::vector<T> y_chain;
  std::vector<T> gw_chains;
};

template <typename T>
Convolved<T> reference(const Conv2dShape& s, const std::vector<T>& x, const std::vector<T>& w,
                       const std::vector<T>& b, const std::vector<T>& gy) {
  Convolved<T> r{std::vector<double>(gy.size()), std::vector<double>(x.size()),
                 std::vector<double>(w.size()),  std::vector<double>(b.size()),
                 std::vector<T>(gy.size()),      std::vector<T>(w.size())};
  std::vector<T> chain(w.size());
  const std::int64_t chain_rows = std::max<std::int64_t>(128 / s.out_w(), 1);
  std::size_t out = 0;
  for (std::int64_t n = 0; n < s.n; ++n) {
    for (std::int64_t o = 0; o < s.out_c; ++o) {
      for (std::int64_t i = 0; i < s.out_h(); ++i) {
        for (std::int64_t j = 0; j < s.out_w(); ++j, ++out) {
          const double g = static_cast<double>(gy[out]);
          r.y[out] = static_cast<double>(b[static_cast<std::size_t>(o)]);
          r.gb[static_cast<std::size_t>(o)] += g;
          r.y_chain[out] = b[static_cast<std::size_t>(o)];
          for (std::int64_t tap = 0; tap < s.c * s.kh * s.kw; ++tap) {
            const std::int64_t c = tap / (s.kh * s.kw);
            const std::int64_t row = i * s.stride_h + tap / s.kw % s.kh - s.pad_h;
            const std::int64_t col = j * s.stride_w + tap % s.kw - s.pad_w;
            const auto weight = static_cast<std::size_t>(o * s.c * s.kh * s.kw + tap);
            const bool ends_chain =
                j == s.out_w() - 1 && (i == s.out_h() - 1 || i % chain_rows == chain_rows - 1);
            const bool inside = row >= 0 && row < s.h && col >= 0 && col < s.w;
            const auto at = static_cast<std::size_t>(((n * s.c + c) * s.h + row) * s.w + col);
            const T pixel = inside ? x[at] : T(0);
            r.y_chain[out] = std::fma(w[weight], pixel, r.y_chain[out]);
            chain[weight] = std::fma(pixel, gy[out], chain[weight]);
            if (ends_chain) {
              r.gw_chains[weight] += chain[weight];
              chain[weight] = 0;
            }
            if (!inside) continue;
            r.y[out] += static_cast<double>(x[at]) * static_cast<double>(w[weight]);
            r.gx[at] += g * static_cast<double>(w[weight]);
            r.gw[weight] += g * static_cast<double>(x[at]);
          }
        }
      }
    }
  }
  return r;
}

template <typename T>
void check_convolutions() {
  for (const Conv2dShape& s : kConvolutions) {
    CAPTURE(s.n, s.c, s.h, s.w, s.out_c, s.kh, s.kw, s.stride_h, s.stride_w, s.pad_h, s.pad_w);
    const std::int64_t outputs = s.n * s.out_h() * s.out_w();
    const auto x = values<T>(s.n * s.c * s.h * s.w, 1);
    const auto w = values<T>(s.out_c * s.c * s.kh * s.kw, 2);
    const auto b = values<T>(s.out_c, 3);
    const auto gy = values<T>(outputs * s.out_c, 4);
    const Convolved<T> want = reference(s, x, w, b, gy);
    // Scratch starts as NaN, and one past its end must stay as it was.
    const auto scratch_size = static_cast<std::size_t>(conv2d_scratch_elements(s));
    std::vector<T> scratch(scratch_size + 1, std::numeric_limits<T>::quiet_NaN());
    scratch[scratch_size] = T(77);
    std::vector<T> y(gy.size());
    std::vector<T> gx(x.size());
    std::vector<T> gw(w.size());
    std::vector<T> gb(b.size());
    conv2d_forward(s, x.data(), w.data(), b.data(), scratch.data(), y.data());
    conv2d_grad_input(s, gy.data(), w.data(), scratch.data(), gx.data());
    conv2d_grad_weight(s, gy.data(), x.data(), scratch.data(), gw.data());
    conv2d_grad_bias(s, gy.data(), gb.data());
    CHECK(scratch[scratch_size] == T(77));
    CHECK(distance(y, want.y) <= product_bound<T>(s.c * s.kh * s.kw));
    CHECK(distance(gx, want.gx) <= product_bound<T>(s.out_c * s.kh * s.kw));
    CHECK(distance(gw, want.gw) <= product_bound<T>(outputs));
    CHECK(distance(gb, want.gb) <= product_bound<T>(outputs));
    CHECK(same_bits(y, want.y_chain));
    CHECK(same_bits(gw, want.gw_chains));

    // A second run finds what the first left in the scratch.
    std::vector<T> y2(y.size());
    std::vector<T> gx2(gx.size());
    std::vector<T> gw2(gw.size());
    conv2d_grad_weight(s, gy.data(), x.data(), scratch.data(), gw2.data());
    conv2d_grad_input(s, gy.data(), w.data(), scratch.data(), gx2.data());
    conv2d_forward(s, x.data(), w.data(), b.data(), scratch.data(), y2.data());
    CHECK(same_bits(y, y2));
    CHECK(same_bits(gx, gx2));
    CHECK(same_bits(gw, gw2));
  }
}

TEST_CASE("conv2d kernels are the convolution and its gradients, whatever the scratch held") {
  for (const Vectors v : all_vectors()) {
    const VectorsScope scope(v);
    INFO(to_string(v));
    check_convolutions<float>();
    check_convolutions<double>();
  }
}

TEST_CASE("an image's convolution does not depend on the rest of the batch") {
  Conv2dShape s{3, 2, 9, 7, 5, 3, 3, 1, 1, 1, 1};
  const auto x = values<float>(s.n * s.c * s.h * s.w, 1);
  const auto w = values<float>(s.out_c * s.c * s.kh * s.kw, 2);
  std::vector<float> scratch(static_cast<std::size_t>(conv2d_scratch_elements(s)));
  const std::int64_t image = s.out_c * s.out_h() * s.out_w();
  std::vector<float> batch(static_cast<std::size_t>(s.n * image));
  conv2d_forward<float>(s, x.data(), w.data(), nullptr, scratch.data(), batch.data());
  s.n = 1;
  for (std::int64_t i = 0; i < 3; ++i) {
    std::vector<float> alone(static_cast<std::size_t>(image));
    conv2d_forward<float>(s, x.data() + i * s.c * s.h * s.w, w.data(), nullptr, scratch.data(),
                          alone.data());
    CHECK(same_bits(
        alone, std::vector<float>(batch.begin() + i * image, batch.begin() + (i + 1) * image)));
  }
}

}  // namespace
}  // namespace rematch::cpu
