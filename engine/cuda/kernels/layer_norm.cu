#include "engine/kernels/layer_norm.h"

#include "engine/cuda/kernels/row_norm.h"

namespace rematch::cuda {

namespace {

/// The terms of gw and gb in a row.
template <typename T>
struct ParameterTerms {
  std::int64_t cols;
  const T* gy;
  const T* x;
  const T* mean;
  const T* rstd;
  __device__ void operator()(std::int64_t r, std::int64_t col, T (&sums)[2]) const {
    const std::int64_t at = r * cols + col;
    sums[0] += math::layer_norm_weight_term(gy[at], x[at], math::row_mean(mean, r), rstd[r]);
    sums[1] += gy[at];
  }
};

}  // namespace

template <typename T>
void layer_norm_forward(std::int64_t rows, std::int64_t cols, const T* x, const T* w, const T* b,
                        T eps, T* y, T* mean, T* rstd) {
  normalise_rows("layer_norm_forward", rows, {.channels = cols}, x, w, b, eps, y, mean, rstd);
}

template <typename T>
void layer_norm_backward(std::int64_t rows, std::int64_t cols, const T* gy, const T* x,
                         const T* mean, const T* rstd, const T* w, T* gx, T* gw, T* gb) {
  if (gw != nullptr || gb != nullptr) {
    column_sums<2, T>("layer_norm_backward", rows, cols, ParameterTerms<T>{cols, gy, x, mean, rstd},
                      scratch_doubles(column_scratch(rows, cols, 2)),
                      ParameterGradients<T>{cols, gw, gb});
  }
  if (gx != nullptr) {
    normalise_rows_backward("layer_norm_backward", rows, {.channels = cols}, gy, x, mean, rstd, w,
                            gx);
  }
}

REMATCH_LAYER_NORM_KERNELS(REMATCH_INSTANTIATE);

}  // namespace rematch::cuda
