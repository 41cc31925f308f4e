#include "engine/kernels/group_norm.h"

#include "engine/cuda/kernels/channels.h"
#include "engine/cuda/kernels/row_norm.h"

namespace rematch::cuda {

namespace {

/// The terms of gw and gb in a channel.
template <typename T>
struct ParameterTerms {
  std::int64_t groups;
  std::int64_t channels;
  const T* gy;
  const T* x;
  const T* mean;
  const T* rstd;
  __device__ Two<T> operator()(std::int64_t at, std::int64_t sample, std::int64_t channel) const {
    const std::int64_t row = sample * groups + channel / channels;
    return {math::layer_norm_weight_term(gy[at], x[at], mean[row], rstd[row]), gy[at]};
  }
};

}  // namespace

template <typename T>
void group_norm_forward(std::int64_t n, std::int64_t c, std::int64_t s, std::int64_t groups,
                        const T* x, const T* w, const T* b, T eps, T* y, T* mean, T* rstd) {
  normalise_rows("group_norm_forward", n * groups, {groups, c / groups, s}, x, w, b, eps, y, mean,
                 rstd);
}

template <typename T>
void group_norm_backward(std::int64_t n, std::int64_t c, std::int64_t s, std::int64_t groups,
                         const T* gy, const T* x, const T* mean, const T* rstd, const T* w, T* gx,
                         T* gw, T* gb) {
  constexpr const char* kName = "group_norm_backward";
  const std::int64_t channels = c / groups;
  if (gw != nullptr || gb != nullptr) {
    const Extents e{n, c, s};
    channel_sums<Two<T>, 2>(kName, e, ParameterTerms<T>{groups, channels, gy, x, mean, rstd},
                            scratch_doubles(2 * c * e.partials()),
                            ParameterGradients<T>{c, gw, gb});
  }
  if (gx != nullptr) {
    normalise_rows_backward(kName, n * groups, {groups, channels, s}, gy, x, mean, rstd, w, gx);
  }
}

REMATCH_GROUP_NORM_KERNELS(REMATCH_INSTANTIATE);

}  // namespace rematch::cuda
