#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>
#include <utility>

#include "engine/cpu/testing/values.h"
#include "engine/kernels/batch_norm.h"
#include "engine/kernels/group_norm.h"
#include "engine/kernels/layer_norm.h"

namespace rematch::cpu {
namespace {

using testing::distance;
using testing::same_bits;
using testing::values;

constexpr double kEps = 1e-3;

/// Some 60 roundings of values up to about 50 (gy and xhat of order 1, invstd below 32, sums of up
/// to 500 terms in lanes): a generous bound that a wrong formula still breaks by far.
template <typename T>
double norm_bound() {
  return 3000 * static_cast<double>(std::numeric_limits<T>::epsilon());
}

/// Group statistics and gradients of y = xhat * w + b over groups of elements that share a mean.
/// group(i) and weight(i) say which group and which weight element i belongs to.
struct Reference {
  std::vector<double> y;
  std::vector<double> mean;
  std::vector<double> variance;
  std::vector<double> gx;
  std::vector<double> gw;
  std::vector<double> gb;
};

template <typename T, typename Group, typename Weight>
Reference reference(const std::vector<T>& x, const std::vector<T>& gy, const std::vector<T>& w,
                    const std::vector<T>& b, std::size_t groups, bool train, const Group& group,
                    const Weight& weight, const std::vector<T>& fixed_mean,
                    const std::vector<T>& fixed_var) {
  const auto size = static_cast<double>(x.size() / groups);
  Reference r{std::vector<double>(x.size()), std::vector<double>(groups),
              std::vector<double>(groups),   std::vector<double>(x.size()),
              std::vector<double>(w.size()), std::vector<double>(w.size())};
  std::vector<double> mean_h(groups);
  std::vector<double> mean_h_xhat(groups);
  for (std::size_t i = 0; i < x.size(); ++i) r.mean[group(i)] += static_cast<double>(x[i]) / size;
  for (std::size_t i = 0; i < x.size(); ++i) {
    r.variance[group(i)] += std::pow(static_cast<double>(x[i]) - r.mean[group(i)], 2) / size;
  }
  if (!train) {
    r.mean.assign(fixed_mean.begin(), fixed_mean.end());
    r.variance.assign(fixed_var.begin(), fixed_var.end());
  }
  const auto xhat = [&](std::size_t i) {
    return (static_cast<double>(x[i]) - r.mean[group(i)]) / std::sqrt(r.variance[group(i)] + kEps);
  };
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double h = static_cast<double>(gy[i]) * static_cast<double>(w[weight(i)]);
    r.y[i] = xhat(i) * static_cast<double>(w[weight(i)]) + static_cast<double>(b[weight(i)]);
    r.gw[weight(i)] += static_cast<double>(gy[i]) * xhat(i);
    r.gb[weight(i)] += static_cast<double>(gy[i]);
    mean_h[group(i)] += h / size;
    mean_h_xhat[group(i)] += h * xhat(i) / size;
  }
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double h = static_cast<double>(gy[i]) * static_cast<double>(w[weight(i)]);
    const double centred = train ? h - mean_h[group(i)] - xhat(i) * mean_h_xhat[group(i)] : h;
    r.gx[i] = centred / std::sqrt(r.variance[group(i)] + kEps);
  }
  return r;
}

template <typename T>
void check_batch_norm(std::int64_t n, std::int64_t c, std::int64_t s, bool train) {
  CAPTURE(n, c, s, train);
  const auto channels = static_cast<std::size_t>(c);
  const auto channel = [&](std::size_t i) { return i / static_cast<std::size_t>(s) % channels; };
  const auto x = values<T>(n * c * s, 1);
  const auto gy = values<T>(n * c * s, 2);
  const auto w = values<T>(c, 3);
  const auto b = values<T>(c, 4);
  auto running_mean = values<T>(c, 5);
  auto running_var = values<T>(c, 6);
  for (T& v : running_var) v = std::abs(v) + T(0.5);
  const auto old_mean = running_mean;
  const auto old_var = running_var;
  const Reference want =
      reference(x, gy, w, b, channels, train, channel, channel, old_mean, old_var);

  std::vector<T> y(x.size());
  std::vector<T> mean(channels);
  std::vector<T> invstd(channels);
  if (train) {
    batch_norm_train<T>(n, c, s, x.data(), w.data(), b.data(), T(kEps), y.data(), mean.data(),
                        invstd.data(), running_mean.data(), running_var.data(), T(0.25));
    const auto size = static_cast<double>(n * s);
    for (std::size_t j = 0; j < channels; ++j) {
      const double var = want.variance[j] * size / (size - 1);
      CHECK(std::abs(static_cast<double>(running_mean[j]) -
                     (0.75 * static_cast<double>(old_mean[j]) + 0.25 * want.mean[j])) <=
            norm_bound<T>());
      CHECK(std::abs(static_cast<double>(running_var[j]) -
                     (0.75 * static_cast<double>(old_var[j]) + 0.25 * var)) <= norm_bound<T>());
    }
  } else {
    batch_norm_eval<T>(n, c, s, x.data(), w.data(), b.data(), running_mean.data(),
                       running_var.data(), T(kEps), y.data(), mean.data(), invstd.data());
  }
  std::vector<T> gx(x.size());
  std::vector<T> gw(channels);
  std::vector<T> gb(channels);
  batch_norm_backward<T>(n, c, s, gy.data(), x.data(), mean.data(), invstd.data(), w.data(), train,
                         gx.data(), gw.data(), gb.data());
  CHECK(distance(y, want.y) <= norm_bound<T>());
  CHECK(distance(mean, want.mean) <= norm_bound<T>());
  CHECK(distance(gx, want.gx) <= norm_bound<T>());
  CHECK(distance(gw, want.gw) <= norm_bound<T>());
  CHECK(distance(gb, want.gb) <= norm_bound<T>());

  // Leaving outputs out changes none of the others.
  std::vector<T> only_gx(x.size());
  std::vector<T> only_gw(channels);
  batch_norm_backward<T>(n, c, s, gy.data(), x.data(), mean.data(), invstd.data(), w.data(), train,
                         only_gx.data(), nullptr, nullptr);
  batch_norm_backward<T>(n, c, s, gy.data(), x.data(), mean.data(), invstd.data(), w.data(), train,
                         nullptr, only_gw.data(), nullptr);
  CHECK(distance(only_gx, gx) <= norm_bound<T>());
  CHECK(same_bits(only_gw, gw));
}

TEST_CASE("batch normalisation matches its formula in training and evaluation") {
  for (const bool train : {true, false}) {
    check_batch_norm<float>(8, 3, 64, train);
    check_batch_norm<float>(5, 70, 1, train);
    check_batch_norm<float>(2, 130, 3, train);
    check_batch_norm<double>(3, 4, 121, train);
    check_batch_norm<double>(7, 2, 1, train);
  }
}

template <typename T>
void check_layer_norm(std::int64_t rows, std::int64_t cols) {
  CAPTURE(rows, cols);
  const auto width = static_cast<std::size_t>(cols);
  const auto x = values<T>(rows * cols, 1);
  const auto gy = values<T>(rows * cols, 2);
  const auto w = values<T>(cols, 3);
  const auto b = values<T>(cols, 4);
  const Reference want = reference(
      x, gy, w, b, static_cast<std::size_t>(rows), true, [=](std::size_t i) { return i / width; },
      [=](std::size_t i) { return i % width; }, {}, {});
  std::vector<T> y(x.size());
  std::vector<T> mean(static_cast<std::size_t>(rows));
  std::vector<T> rstd(static_cast<std::size_t>(rows));
  std::vector<T> gx(x.size());
  std::vector<T> gw(width);
  std::vector<T> gb(width);
  layer_norm_forward<T>(rows, cols, x.data(), w.data(), b.data(), T(kEps), y.data(), mean.data(),
                        rstd.data());
  layer_norm_backward<T>(rows, cols, gy.data(), x.data(), mean.data(), rstd.data(), w.data(),
                         gx.data(), gw.data(), gb.data());
  CHECK(distance(y, want.y) <= norm_bound<T>());
  CHECK(distance(mean, want.mean) <= norm_bound<T>());
  CHECK(distance(gx, want.gx) <= norm_bound<T>());
  CHECK(distance(gw, want.gw) <= norm_bound<T>());
  CHECK(distance(gb, want.gb) <= norm_bound<T>());
  std::vector<T> only_gx(x.size());
  layer_norm_backward<T>(rows, cols, gy.data(), x.data(), mean.data(), rstd.data(), w.data(),
                         only_gx.data(), nullptr, nullptr);
  CHECK(same_bits(only_gx, gx));
}

TEST_CASE("layer normalisation matches its formula") {
  check_layer_norm<float>(4, 32);
  check_layer_norm<float>(3, 77);
  check_layer_norm<double>(9, 5);
  check_layer_norm<double>(2, 1500);
}

template <typename T>
void check_rms_norm(std::int64_t rows, std::int64_t cols) {
  CAPTURE(rows, cols);
  const auto width = static_cast<std::size_t>(cols);
  const auto x = values<T>(rows * cols, 1);
  const auto gy = values<T>(rows * cols, 2);
  const auto w = values<T>(cols, 3);
  std::vector<double> want_y(x.size());
  std::vector<double> want_gx(x.size());
  std::vector<double> want_gw(width);
  for (std::size_t first = 0; first < x.size(); first += width) {
    double square = 0;
    double dot = 0;
    for (std::size_t i = 0; i < width; ++i) {
      const auto v = static_cast<double>(x[first + i]);
      square += v * v / static_cast<double>(cols);
      dot += static_cast<double>(gy[first + i]) * static_cast<double>(w[i]) * v;
    }
    const double root = std::sqrt(square + kEps);
    for (std::size_t i = 0; i < width; ++i) {
      const auto v = static_cast<double>(x[first + i]);
      const auto g = static_cast<double>(gy[first + i]);
      const auto weight = static_cast<double>(w[i]);
      want_y[first + i] = v / root * weight;
      want_gx[first + i] =
          g * weight / root - v * dot / (std::pow(root, 3) * static_cast<double>(cols));
      want_gw[i] += g * v / root;
    }
  }
  std::vector<T> y(x.size());
  std::vector<T> rstd(static_cast<std::size_t>(rows));
  std::vector<T> gx(x.size());
  std::vector<T> gw(width);
  layer_norm_forward<T>(rows, cols, x.data(), w.data(), nullptr, T(kEps), y.data(), nullptr,
                        rstd.data());
  layer_norm_backward<T>(rows, cols, gy.data(), x.data(), nullptr, rstd.data(), w.data(), gx.data(),
                         gw.data(), nullptr);
  CHECK(distance(y, want_y) <= norm_bound<T>());
  CHECK(distance(gx, want_gx) <= norm_bound<T>());
  CHECK(distance(gw, want_gw) <= norm_bound<T>());
}

TEST_CASE("RMS normalisation, which has no mean, matches its formula") {
  check_rms_norm<float>(4, 32);
  check_rms_norm<float>(3, 77);
  check_rms_norm<double>(9, 5);
  check_rms_norm<double>(2, 1500);
  check_rms_norm<double>(300, 3);
}

template <typename T>
void check_group_norm(std::int64_t n, std::int64_t c, std::int64_t s, std::int64_t groups) {
  CAPTURE(n, c, s, groups);
  const auto sets = static_cast<std::size_t>(n * groups);
  const auto width = static_cast<std::size_t>(c / groups * s);
  const auto channels = static_cast<std::size_t>(c);
  const auto x = values<T>(n * c * s, 1);
  const auto gy = values<T>(n * c * s, 2);
  const auto w = values<T>(c, 3);
  const auto b = values<T>(c, 4);
  const Reference want = reference(
      x, gy, w, b, sets, true, [=](std::size_t i) { return i / width; },
      [=](std::size_t i) { return i / static_cast<std::size_t>(s) % channels; }, {}, {});
  std::vector<T> y(x.size());
  std::vector<T> mean(sets);
  std::vector<T> rstd(sets);
  std::vector<T> gx(x.size());
  std::vector<T> gw(channels);
  std::vector<T> gb(channels);
  group_norm_forward<T>(n, c, s, groups, x.data(), w.data(), b.data(), T(kEps), y.data(),
                        mean.data(), rstd.data());
  group_norm_backward<T>(n, c, s, groups, gy.data(), x.data(), mean.data(), rstd.data(), w.data(),
                         gx.data(), gw.data(), gb.data());
  CHECK(distance(y, want.y) <= norm_bound<T>());
  CHECK(distance(mean, want.mean) <= norm_bound<T>());
  CHECK(distance(gx, want.gx) <= norm_bound<T>());
  CHECK(distance(gw, want.gw) <= norm_bound<T>());
  CHECK(distance(gb, want.gb) <= norm_bound<T>());
  std::vector<T> only_gx(x.size());
  std::vector<T> only_gb(channels);
  group_norm_backward<T>(n, c, s, groups, gy.data(), x.data(), mean.data(), rstd.data(), w.data(),
                         only_gx.data(), nullptr, nullptr);
  group_norm_backward<T>(n, c, s, groups, gy.data(), x.data(), mean.data(), rstd.data(), w.data(),
                         nullptr, nullptr, only_gb.data());
  CHECK(same_bits(only_gx, gx));
  CHECK(same_bits(only_gb, gb));
}

TEST_CASE("group normalisation matches its formula") {
  check_group_norm<float>(4, 32, 1, 4);
  check_group_norm<float>(3, 6, 35, 2);
  check_group_norm<float>(2, 130, 3, 13);
  check_group_norm<double>(9, 5, 4, 5);
  // Sets beyond a block of the sums, whose ends are not those of channels.
  check_group_norm<double>(2, 6, 700, 2);
  check_group_norm<double>(2, 3, 1500, 1);
}

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
