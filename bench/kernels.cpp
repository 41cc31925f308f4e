// Matrix products of the engine against Eigen's, interleaved in one run: the counter eigen_ratio
// is Eigen's time over ours, so that a figure above 1 means that ours is faster. Eigen is compiled
// with the same flags and on one thread, as ours is.
#include <benchmark/benchmark.h>

#include <Eigen/Core>
#include <chrono>
#include <vector>

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

enum class Product { forward, grad_input, grad_weight };

/// range: batch, inputs, outputs.
template <Product kProduct>
void linear_against_eigen(benchmark::State& state) {
  const std::int64_t n = state.range(0);
  const std::int64_t k = state.range(1);
  const std::int64_t m = state.range(2);
  std::vector<float> x = drawn(n * k, 0);
  std::vector<float> w = drawn(m * k, 1);
  std::vector<float> y = drawn(n * m, 2);
  const View vx(x.data(), n, k);
  const View vw(w.data(), m, k);
  const View vy(y.data(), n, m);
  Matrix out(kProduct == Product::forward      ? n
             : kProduct == Product::grad_input ? n
                                               : m,
             kProduct == Product::forward ? m : k);
  std::chrono::duration<double> eigen{0};
  std::chrono::duration<double> ours{0};
  for (auto _ : state) {
    const auto begin = Clock::now();
    if constexpr (kProduct == Product::forward) {
      cpu::linear_forward<float>(x.data(), w.data(), nullptr, out.data(), n, k, m);
    } else if constexpr (kProduct == Product::grad_input) {
      cpu::linear_grad_input<float>(y.data(), w.data(), out.data(), n, k, m);
    } else {
      cpu::linear_grad_weight<float>(y.data(), x.data(), out.data(), n, k, m);
    }
    benchmark::ClobberMemory();
    const auto middle = Clock::now();
    if constexpr (kProduct == Product::forward) {
      out.noalias() = vx * vw.transpose();
    } else if constexpr (kProduct == Product::grad_input) {
      out.noalias() = vy * vw;
    } else {
      out.noalias() = vy.transpose() * vx;
    }
    benchmark::ClobberMemory();
    const auto end = Clock::now();
    ours += middle - begin;
    eigen += end - middle;
    state.SetIterationTime(std::chrono::duration<double>(middle - begin).count());
  }
  state.counters["eigen_ratio"] = eigen.count() / ours.count();
}

void shapes(benchmark::internal::Benchmark* b) {
  b->ArgNames({"batch", "inputs", "outputs"})
      ->Args({8, 32, 32})
      ->Args({32, 1024, 1024})
      ->Args({64, 256, 256})
      ->Args({256, 1024, 10})
      ->UseManualTime()
      ->Unit(benchmark::kMicrosecond);
}

BENCHMARK_TEMPLATE(linear_against_eigen, Product::forward)->Apply(shapes);
BENCHMARK_TEMPLATE(linear_against_eigen, Product::grad_input)->Apply(shapes);
BENCHMARK_TEMPLATE(linear_against_eigen, Product::grad_weight)->Apply(shapes);

}  // namespace
}  // namespace rematch
