#include "engine/kernels/random.h"

#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "engine/cpu/testing/values.h"
#include "engine/cpu/testing/vectors.h"
#include "engine/math/elementary.h"
#include "engine/random/philox.h"

namespace rematch::cpu {
namespace {

using namespace testing;

constexpr std::uint64_t kSeed = 0x123456789abcdefULL;
constexpr std::uint64_t kSubsequence = 0x1500000003ULL;
// Whole and broken chunks, from every position in a block, across the carry of a block's low word.
constexpr std::int64_t kCounts[] = {1, 2, 5, 31, 32, 33, 255, 256, 257, 1000};
constexpr std::uint64_t kOffsets[] = {0, 1, 2, 3, 1021, (std::uint64_t{1} << 34) - 6};

template <typename Check>
void for_each_draw(const Check& check) {
  for (const Vectors v : testing::all_vectors()) {
    const VectorsScope scope(v);
    for (const std::int64_t n : kCounts) {
      for (const std::uint64_t offset : kOffsets) {
        CAPTURE(to_string(v), n, offset);
        check(n, offset);
      }
    }
  }
}

std::uint32_t word(std::uint64_t position) {
  return PhiloxStream{kSeed, kSubsequence}.word(position);
}

TEST_CASE("dropout keeps exactly the elements whose word is below the threshold") {
  for (const double p : {0.0, 0.3, 0.5, 1.0}) {
    for_each_draw([=](std::int64_t n, std::uint64_t offset) {
      const auto x = values<float>(n, 1);
      std::vector<std::uint8_t> mask(x.size());
      std::vector<float> y(x.size());
      std::vector<float> gx(x.size());
      dropout_forward(n, x.data(), p, kSeed, kSubsequence, offset, mask.data(), y.data());
      dropout_backward(n, x.data(), mask.data(), p, gx.data());
      std::vector<std::uint8_t> want_mask;
      std::vector<float> want;
      for (std::size_t i = 0; i < x.size(); ++i) {
        want_mask.push_back(word(offset + i) < keep_threshold(p) ? 1 : 0);
        want.push_back(want_mask[i] == 1 ? x[i] * static_cast<float>(1 / (1 - p)) : 0.0F);
      }
      CHECK(mask == want_mask);
      CHECK(same_bits(y, want));
      CHECK(same_bits(gx, want));
    });
  }
}

template <typename T>
T uniform(std::uint32_t w) {
  if constexpr (sizeof(T) == 4) {
    return uniform_float(w);
  } else {
    return uniform_double(w);
  }
}

template <typename T>
void check_uniforms() {
  for_each_draw([](std::int64_t n, std::uint64_t offset) {
    const auto x = values<T>(n, 1);
    std::vector<T> drawn(x.size());
    std::vector<T> noise(x.size());
    std::vector<T> y(x.size());
    fill_uniform(n, kSeed, kSubsequence, offset, T(-2), T(3), drawn.data());
    rrelu_forward(n, x.data(), T(0.125), T(0.5), kSeed, kSubsequence, offset, noise.data(),
                  y.data());
    std::vector<T> want_drawn;
    std::vector<T> want_noise;
    std::vector<T> want_y;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const T u = uniform<T>(word(offset + i));
      want_drawn.push_back(std::fma(T(5), u, T(-2)));
      want_noise.push_back(x[i] >= 0 ? T(1) : std::fma(T(0.375), u, T(0.125)));
      want_y.push_back(x[i] * want_noise[i]);
    }
    CHECK(same_bits(drawn, want_drawn));
    CHECK(same_bits(noise, want_noise));
    CHECK(same_bits(y, want_y));
    multiply(n, x.data(), noise.data(), y.data());
    CHECK(same_bits(y, want_y));
  });
}

TEST_CASE("uniform fills and rrelu draw one word per element") {
  check_uniforms<float>();
  check_uniforms<double>();
}

template <typename T>
void check_normals() {
  for_each_draw([](std::int64_t n, std::uint64_t offset) {
    const auto x = values<T>(n, 1);
    std::vector<T> drawn(x.size());
    std::vector<T> noisy(x.size());
    fill_normal(n, kSeed, kSubsequence, offset, T(1), T(2), drawn.data());
    gaussian_noise_forward(n, x.data(), T(0.5), kSeed, kSubsequence, offset, noisy.data());
    std::vector<T> want_drawn;
    std::vector<T> want_noisy;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const std::uint64_t pair = offset + i / 2 * 2;
      const auto z = math::box_muller(uniform_double(word(pair)), uniform_double(word(pair + 1)));
      const T drawn_z = static_cast<T>(i % 2 == 0 ? z.cos : z.sin);
      want_drawn.push_back(std::fma(T(2), drawn_z, T(1)));
      want_noisy.push_back(std::fma(T(0.5), drawn_z, x[i]));
    }
    CHECK(same_bits(drawn, want_drawn));
    CHECK(same_bits(noisy, want_noisy));
  });
}

TEST_CASE("normal fills and gaussian noise draw one Box-Muller pair per two elements") {
  check_normals<float>();
  check_normals<double>();
}

TEST_CASE("a hundred thousand normals have the moments of a normal") {
  const std::int64_t n = 100000;
  std::vector<double> z(static_cast<std::size_t>(n));
  fill_normal<double>(n, 5, 0, 0, 0.0, 1.0, z.data());
  double moments[5] = {};
  for (const double v : z) {
    for (int k = 1; k <= 4; ++k) moments[k] += std::pow(v, k) / static_cast<double>(n);
  }
  // Five standard errors: the k-th moment's variance is (E z^2k - (E z^k)^2) / n.
  const double unit = 5 / std::sqrt(static_cast<double>(n));
  CHECK(std::abs(moments[1]) < unit * 1.0);
  CHECK(std::abs(moments[2] - 1) < unit * std::sqrt(2.0));
  CHECK(std::abs(moments[3]) < unit * std::sqrt(15.0));
  CHECK(std::abs(moments[4] - 3) < unit * std::sqrt(96.0));
}

}  // namespace
}  // namespace rematch::cpu
