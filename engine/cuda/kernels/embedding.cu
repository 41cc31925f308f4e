#include "engine/kernels/embedding.h"

#include "engine/cuda/runtime/launch.h"
#include "engine/math/elementary.h"

namespace rematch::cuda {

namespace {

template <typename T>
__global__ void __launch_bounds__(kThreads)
    rows_of_tokens_kernel(std::int64_t elements, std::int64_t rows, std::int64_t features,
                          const std::int32_t* tokens, const T* weight, T* y) {
  for (std::int64_t i = global_thread(); i < elements; i += global_threads()) {
    const std::int64_t row = tokens[i / features];
    const bool has_row = row >= 0 && row < rows;
    y[i] = has_row ? weight[row * features + i % features] : math::detail::kNan<T>;
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    sum_rows_of_tokens_kernel(std::int64_t n, std::int64_t rows, std::int64_t features,
                              const std::int32_t* tokens, const T* gy, T* gw) {
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    for (std::int64_t c = threadIdx.x; c < features; c += blockDim.x) {
      T sum = 0;
      for (std::int64_t i = 0; i < n; ++i) {
        if (tokens[i] == row) sum += gy[i * features + c];
      }
      gw[row * features + c] = sum;
    }
  }
}

}  // namespace

template <typename T>
void rows_of_tokens(std::int64_t n, std::int64_t rows, std::int64_t features,
                    const std::int32_t* tokens, const T* weight, T* y) {
  const std::int64_t elements = n * features;
  if (elements == 0) return;
  rows_of_tokens_kernel<<<grid_for(elements), kThreads, 0, stream()>>>(elements, rows, features,
                                                                       tokens, weight, y);
  check_launch("rows_of_tokens");
}

template <typename T>
void sum_rows_of_tokens(std::int64_t n, std::int64_t rows, std::int64_t features,
                        const std::int32_t* tokens, const T* gy, T* gw) {
  if (rows * features == 0) return;
  sum_rows_of_tokens_kernel<<<grid_for(rows, 1), kThreads, 0, stream()>>>(n, rows, features, tokens,
                                                                          gy, gw);
  check_launch("sum_rows_of_tokens");
}

REMATCH_EMBEDDING_KERNELS(REMATCH_INSTANTIATE);

}  // namespace rematch::cuda
