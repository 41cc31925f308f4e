// Matrix products of the engine beside Eigen's and OpenBLAS's, interleaved in one run on one
// thread: eigen_ratio and openblas_ratio are their times over ours, so that a figure above 1 means
// that ours is faster; `peak` is the share of what the core's multipliers can do, which is measured
// beside them. Eigen is compiled with the same flags as ours; OpenBLAS, where it is installed,
// chooses its own kernels.
#include <benchmark/benchmark.h>
#include <immintrin.h>

#include <Eigen/Core>
#include <algorithm>
#include <chrono>
#include <vector>

#ifdef REMATCH_OPENBLAS
#include <cblas.h>
#endif

#include "engine/cpu/chain.h"
#include "engine/kernels/linear.h"
#include "engine/kernels/random.h"

namespace rematch {
namespace {

using Clock = std::chrono::steady_clock;
using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using View = Eigen::Map<Matrix>;

std::vector<float> drawn(std::int64_t n, std::uint64_t stream) {
  std::vector<float> v(static_cast<std::size_t>(n));
  cpu::fill_normal<float>(n, 1, stream, 0, 0.0F, 1.0F, v.data());
  return v;
}

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// Floating-point operations a second of as many independent chains of 256-bit multiply-adds as the
/// core has room for: two of them at once, four to five cycles each.
double peak_now() {
  constexpr int kChains = 12;
  constexpr int kSteps = 20000;
  __m256 chain[kChains];
#pragma GCC unroll 12
  for (int c = 0; c < kChains; ++c) chain[c] = _mm256_set1_ps(static_cast<float>(c));
  const __m256 factor = _mm256_set1_ps(0.999F);
  const auto begin = Clock::now();
  for (int i = 0; i < kSteps; ++i) {
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) chain[c] = _mm256_fmadd_ps(factor, chain[c], factor);
  }
  const double seconds = seconds_since(begin);
#pragma GCC unroll 12
  for (int c = 1; c < kChains; ++c) chain[0] = _mm256_add_ps(chain[0], chain[c]);
  benchmark::DoNotOptimize(chain[0][0]);
  return 2.0 * 8 * kChains * kSteps / seconds;
}

enum class Product { forward, grad_input, grad_weight };

/// One product, of n inputs of k features each with a weight[m,k], as three libraries compute it.
struct Operands {
  Product product;
  std::int64_t n, k, m;
  std::vector<float> x = drawn(n * k, 0);
  std::vector<float> w = drawn(m * k, 1);
  std::vector<float> y = drawn(n * m, 2);
  std::vector<float> out =
      std::vector<float>(static_cast<std::size_t>(std::max({n * k, m* k, n* m})));

  void ours() {
    if (product == Product::forward) {
      cpu::linear_forward<float>(x.data(), w.data(), nullptr, out.data(), n, k, m);
    } else if (product == Product::grad_input) {
      cpu::linear_grad_input<float>(y.data(), w.data(), out.data(), n, k, m);
    } else {
      cpu::linear_grad_weight<float>(y.data(), x.data(), out.data(), n, k, m);
    }
  }
  void eigen() {
    const View vx(x.data(), n, k);
    const View vw(w.data(), m, k);
    const View vy(y.data(), n, m);
    if (product == Product::forward) {
      View(out.data(), n, m).noalias() = vx * vw.transpose();
    } else if (product == Product::grad_input) {
      View(out.data(), n, k).noalias() = vy * vw;
    } else {
      View(out.data(), m, k).noalias() = vy.transpose() * vx;
    }
  }
#ifdef REMATCH_OPENBLAS
  void openblas() {
    const auto call = [&](CBLAS_TRANSPOSE ta, CBLAS_TRANSPOSE tb, std::int64_t rows,
                          std::int64_t cols, std::int64_t depth, const std::vector<float>& a,
                          std::int64_t lda, const std::vector<float>& b, std::int64_t ldb) {
      const auto i = [](std::int64_t v) { return static_cast<blasint>(v); };
      cblas_sgemm(CblasRowMajor, ta, tb, i(rows), i(cols), i(depth), 1.0F, a.data(), i(lda),
                  b.data(), i(ldb), 0.0F, out.data(), i(cols));
    };
    if (product == Product::forward) {
      call(CblasNoTrans, CblasTrans, n, m, k, x, k, w, k);
    } else if (product == Product::grad_input) {
      call(CblasNoTrans, CblasNoTrans, n, k, m, y, m, w, k);
    } else {
      call(CblasTrans, CblasNoTrans, m, k, n, y, m, x, k);
    }
  }
#endif
};

double seconds_of(auto&& run) {
  const auto begin = Clock::now();
  run();
  benchmark::ClobberMemory();
  return seconds_since(begin);
}

double median(std::vector<double>& v) {
  std::nth_element(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2), v.end());
  return v[v.size() / 2];
}

/// range: batch, inputs, outputs.
template <Product kProduct>
void linear(benchmark::State& state) {
  Operands operands{kProduct, state.range(0), state.range(1), state.range(2)};
  std::vector<double> ours;
  std::vector<double> eigen;
  std::vector<double> openblas;
  std::vector<double> peak;
  for (auto _ : state) {
    ours.push_back(seconds_of([&] { operands.ours(); }));
    eigen.push_back(seconds_of([&] { operands.eigen(); }));
#ifdef REMATCH_OPENBLAS
    openblas.push_back(seconds_of([&] { operands.openblas(); }));
#endif
    // Now and then, for the core's clock changes.
    if (ours.size() % 16 == 1) peak.push_back(peak_now());
    state.SetIterationTime(ours.back());
  }
  const double typical = median(ours);
  const double flops = 2.0 * static_cast<double>(operands.n * operands.k * operands.m) / typical;
  state.counters["gflops"] = flops / 1e9;
  state.counters["eigen_ratio"] = median(eigen) / typical;
#ifdef REMATCH_OPENBLAS
  state.counters["openblas_ratio"] = median(openblas) / typical;
#endif
  if (cpu::best_vectors() == cpu::Vectors::avx2) state.counters["peak"] = flops / median(peak);
}

/// Those of the models that rematch-bench steps through, a small one of a random case, and two
/// more.
void shapes(benchmark::internal::Benchmark* b) {
  b->ArgNames({"batch", "inputs", "outputs"})->UseManualTime()->Unit(benchmark::kMicrosecond);
  for (const std::vector<std::int64_t>& shape :
       std::vector<std::vector<std::int64_t>>{{8, 32, 32},
                                              {32, 1024, 1024},
                                              {32, 1024, 10},
                                              {64, 256, 256},
                                              {64, 4096, 512},
                                              {64, 512, 10},
                                              {256, 1024, 10},
                                              {2048, 256, 256},
                                              {2048, 256, 512},
                                              {2048, 256, 1024},
                                              {2048, 1024, 256},
                                              {1024, 1024, 1024}}) {
    b->Args(shape);
  }
}

BENCHMARK_TEMPLATE(linear, Product::forward)->Apply(shapes);
BENCHMARK_TEMPLATE(linear, Product::grad_input)->Apply(shapes);
BENCHMARK_TEMPLATE(linear, Product::grad_weight)->Apply(shapes);

}  // namespace
}  // namespace rematch
