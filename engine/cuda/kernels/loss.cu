#include "engine/kernels/loss.h"

#include "engine/cuda/kernels/reduce.h"
#include "engine/math/elementary.h"
#include "engine/math/pointwise.h"

namespace rematch::cuda {

namespace {

/// Rows that a thread block takes one after the other.
constexpr unsigned kRounds = 4;

template <typename T>
struct SquaredDifference {
  const T* x;
  const T* target;
  __device__ T operator()(std::int64_t i) const {
    return math::squared_difference(x[i], target[i]);
  }
};

template <typename T>
struct Mean {
  T* out;
  std::int64_t count;
  __device__ void operator()(std::int64_t /*item*/, double total) const {
    *out = static_cast<T>(total / static_cast<double>(count));
  }
};

template <typename T>
struct MseGradient {
  const T* g;
  std::int64_t n;
  __device__ void operator()(std::int64_t /*i*/, T x, T target, T& gx) const {
    gx = math::mse_gradient(math::mse_factor(*g, n), x, target);
  }
};

/// The only thread block also adds up the losses, of at most one group of a GroupedSum. Told that
/// one block a multiprocessor will do, the assembler keeps a double row's values in registers.
template <typename Row, typename T>
__global__ void __launch_bounds__(Row::kBlockThreads, 1)
    cross_entropy_kernel(std::int64_t rows, std::int64_t cols, const T* all_x,
                         const std::int32_t* target, T* all_log_probs, double* losses, T* out) {
  for_each_row<Row>(rows, [=](std::int64_t r) {
    const T* x = all_x + r * cols;
    T* log_probs = all_log_probs + r * cols;
    const T top = Row::max(cols, x);
    const double sum =
        Row::template sum<T>(cols, [=](std::int64_t i) { return math::exp(x[i] - top); });
    const T log_sum = static_cast<T>(math::log(sum));
    if (Row::leads()) {
      const std::int64_t hit = target[r];
      const T log_prob = hit >= 0 && hit < cols ? (x[hit] - top) - log_sum : math::detail::kNan<T>;
      losses[r] = -static_cast<double>(log_prob);
    }
    Row::each(cols, [=](std::int64_t i) { log_probs[i] = (x[i] - top) - log_sum; });
  });
  if (gridDim.x > 1) return;
  __syncthreads();
  if (threadIdx.x >= 32) return;
  const double total = detail::ascending_sum(losses, rows, 1);
  if (threadIdx.x == 0) Mean<T>{out, rows}(0, total);
}

template <typename Row, typename T>
__global__ void __launch_bounds__(Row::kBlockThreads)
    cross_entropy_gradient_kernel(std::int64_t rows, std::int64_t cols, const T* g,
                                  const T* all_log_probs, const std::int32_t* target, T* all_gx) {
  const T factor = math::cross_entropy_factor(*g, rows);
  for_each_row<Row>(rows, [=](std::int64_t r) {
    const T* log_probs = all_log_probs + r * cols;
    T* gx = all_gx + r * cols;
    const std::int64_t hit = target[r];
    Row::each(cols, [=](std::int64_t i) {
      gx[i] = math::cross_entropy_gradient(factor, log_probs[i], i == hit);
    });
  });
}

}  // namespace

template <typename T>
void mse_forward(std::int64_t n, const T* x, const T* target, T* out) {
  lane_sum<T>("mse_forward", n, SquaredDifference<T>{x, target}, Mean<T>{out, n});
}

template <typename T>
void mse_backward(std::int64_t n, const T* g, const T* x, const T* target, T* gx) {
  visit<kVector<T>>("mse_backward", n, MseGradient<T>{g, n}, In<T>{x}, In<T>{target}, Out<T>{gx});
}

template <typename T>
void cross_entropy_forward(std::int64_t rows, std::int64_t cols, const T* x,
                           const std::int32_t* target, T* log_probs, T* out) {
  double* losses = scratch_doubles(rows);
  if (rows > 0) {
    bool is_one = false;
    with_row(rows, cols, [&](auto row, unsigned blocks, int threads) {
      // A few rounds take less time than a second launch.
      if (blocks <= kRounds && rows <= math::kSumGroup) blocks = 1;
      is_one = blocks == 1;
      cross_entropy_kernel<decltype(row)>
          <<<blocks, threads, 0, stream()>>>(rows, cols, x, target, log_probs, losses, out);
    });
    check_launch("cross_entropy_forward");
    if (is_one) return;
  }
  totals("cross_entropy_forward", 1, rows, losses, Mean<T>{out, rows});
}

template <typename T>
void cross_entropy_backward(std::int64_t rows, std::int64_t cols, const T* g, const T* log_probs,
                            const std::int32_t* target, T* gx) {
  if (rows <= 0 || cols <= 0) return;
  with_row(rows, cols, [=](auto row, unsigned blocks, int threads) {
    cross_entropy_gradient_kernel<decltype(row)>
        <<<blocks, threads, 0, stream()>>>(rows, cols, g, log_probs, target, gx);
  });
  check_launch("cross_entropy_backward");
}

REMATCH_LOSS_KERNELS(REMATCH_INSTANTIATE);

}  // namespace rematch::cuda
