#include "engine/kernels/linear.h"

#include <catch2/catch_test_macros.hpp>
#include <cmath>

#include "engine/cpu/testing/values.h"
#include "engine/cpu/testing/vectors.h"

namespace rematch::cpu {
namespace {

using namespace testing;

struct Extents {
  std::int64_t n;
  std::int64_t k;
  std::int64_t m;
};
// Every tail of every tile, and shapes of more than one packed block of rows, columns and depth.
constexpr Extents kExtents[] = {{1, 1, 1},      {1, 3, 2},       {2, 7, 5},     {3, 8, 3},
                                {4, 9, 10},     {5, 17, 4},      {7, 16, 6},    {8, 32, 32},
                                {13, 31, 29},   {6, 33, 1},      {14, 40, 7},   {1, 70, 20},
                                {15, 75, 33},   {19, 301, 70},   {33, 90, 259}, {300, 130, 65},
                                {70, 600, 400}, {401, 70, 1100}, {413, 900, 21}};

template <typename T>
void check_products() {
  for (const auto [n, k, m] : kExtents) {
    CAPTURE(n, k, m);
    const auto x = values<T>(n * k, 1);
    const auto w = values<T>(m * k, 2);
    const auto b = values<T>(m, 3);
    const auto gy = values<T>(n * m, 4);
    std::vector<double> y(static_cast<std::size_t>(n * m));
    std::vector<double> gx(x.size());
    std::vector<double> gw(w.size());
    std::vector<double> gb(b.size());
    // Bit for bit what the contracts promise.
    std::vector<T> y_chain(y.size());
    std::vector<T> gx_chain(x.size());
    std::vector<T> gw_chain(w.size());
    for (std::int64_t i = 0; i < n; ++i) {
      for (std::int64_t j = 0; j < m; ++j) {
        const auto ij = static_cast<std::size_t>(i * m + j);
        y[ij] = static_cast<double>(b[static_cast<std::size_t>(j)]);
        y_chain[ij] = b[static_cast<std::size_t>(j)];
        gb[static_cast<std::size_t>(j)] += static_cast<double>(gy[ij]);
        for (std::int64_t l = 0; l < k; ++l) {
          const auto il = static_cast<std::size_t>(i * k + l);
          const auto jl = static_cast<std::size_t>(j * k + l);
          y[ij] += static_cast<double>(x[il]) * static_cast<double>(w[jl]);
          gx[il] += static_cast<double>(gy[ij]) * static_cast<double>(w[jl]);
          gw[jl] += static_cast<double>(gy[ij]) * static_cast<double>(x[il]);
          y_chain[ij] = std::fma(x[il], w[jl], y_chain[ij]);
          gx_chain[il] = std::fma(gy[ij], w[jl], gx_chain[il]);
          gw_chain[jl] = std::fma(gy[ij], x[il], gw_chain[jl]);
        }
      }
    }
    std::vector<T> got_y(y.size());
    std::vector<T> got_gx(x.size());
    std::vector<T> got_gw(w.size());
    std::vector<T> got_gb(b.size());
    linear_forward(x.data(), w.data(), b.data(), got_y.data(), n, k, m);
    linear_grad_input(gy.data(), w.data(), got_gx.data(), n, k, m);
    linear_grad_weight(gy.data(), x.data(), got_gw.data(), n, k, m);
    sum_rows(gy.data(), got_gb.data(), n, m);
    CHECK(distance(got_y, y) <= product_bound<T>(k));
    CHECK(distance(got_gx, gx) <= product_bound<T>(m));
    CHECK(distance(got_gw, gw) <= product_bound<T>(n));
    CHECK(distance(got_gb, gb) <= product_bound<T>(n));
    CHECK(same_bits(got_y, y_chain));
    CHECK(same_bits(got_gx, gx_chain));
    CHECK(same_bits(got_gw, gw_chain));

    std::vector<T> again(y.size());
    linear_forward(x.data(), w.data(), b.data(), again.data(), n, k, m);
    CHECK(same_bits(again, got_y));
  }
}

TEST_CASE("linear kernels are matrix products, each element a single fma chain") {
  for (const Vectors v : all_vectors()) {
    const VectorsScope scope(v);
    INFO(to_string(v));
    check_products<float>();
    check_products<double>();
  }
}

TEST_CASE("a row of a linear layer's output does not depend on the rest of the batch") {
  const std::int64_t k = 45;
  const std::int64_t m = 23;
  const auto x = values<float>(9 * k, 1);
  const auto w = values<float>(m * k, 2);
  std::vector<float> batch(static_cast<std::size_t>(9 * m));
  linear_forward<float>(x.data(), w.data(), nullptr, batch.data(), 9, k, m);
  for (std::int64_t i = 0; i < 9; ++i) {
    std::vector<float> alone(static_cast<std::size_t>(m));
    linear_forward<float>(x.data() + i * k, w.data(), nullptr, alone.data(), 1, k, m);
    CHECK(same_bits(alone, std::vector<float>(batch.begin() + i * m, batch.begin() + (i + 1) * m)));
  }
}

}  // namespace
}  // namespace rematch::cpu
