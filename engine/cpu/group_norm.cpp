#include "engine/kernels/group_norm.h"

#include "engine/cpu/channels.h"
#include "engine/cpu/row_norm.h"

namespace rematch::cpu {

template <typename T>
void group_norm_forward(std::int64_t n, std::int64_t c, std::int64_t s, std::int64_t groups,
                        const T* x, const T* w, const T* b, T eps, T* y, T* mean, T* rstd) {
  normalise_rows(n * groups, {groups, c / groups, s}, x, w, b, eps, y, mean, rstd);
}

template <typename T>
void group_norm_backward(std::int64_t n, std::int64_t c, std::int64_t s, std::int64_t groups,
                         const T* gy, const T* x, const T* mean, const T* rstd, const T* w, T* gx,
                         T* gw, T* gb) {
  const std::int64_t channels = c / groups;
  if (gw != nullptr) {
    channel_sums<T>(
        n, c, s, 0, c,
        [=](std::int64_t at, std::int64_t i, std::int64_t j) {
          const std::int64_t row = i * groups + j / channels;
          return math::layer_norm_weight_term(gy[at], x[at], mean[row], rstd[row]);
        },
        [=](std::int64_t j, double total) { gw[j] = static_cast<T>(total); });
  }
  if (gb != nullptr) {
    channel_sums<T>(
        n, c, s, 0, c, [=](std::int64_t at, std::int64_t, std::int64_t) { return gy[at]; },
        [=](std::int64_t j, double total) { gb[j] = static_cast<T>(total); });
  }
  if (gx != nullptr) {
    normalise_rows_backward(n * groups, {groups, channels, s}, gy, x, mean, rstd, w, gx);
  }
}

REMATCH_GROUP_NORM_KERNELS(REMATCH_INSTANTIATE);

}  // namespace rematch::cpu
