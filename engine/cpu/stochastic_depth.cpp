#include "engine/kernels/stochastic_depth.h"

#include <algorithm>

#include "engine/cpu/threads.h"

namespace rematch::cpu {

namespace {

using math::DepthShape;

/// Sums of `products` products that are worth a second thread.
std::int64_t grain(std::int64_t products) {
  return kGrain / std::max<std::int64_t>(products, 1) + 1;
}

}  // namespace

template <typename T>
void exit_factors(const DepthShape& s, const T* x, T* factors) {
  for (std::int64_t n = 0; n < s.samples; ++n) factors[n] = math::exit_factor(s, n, x);
}

template <typename T>
void stochastic_depth_forward(const DepthShape& s, const T* x, const T* weight, const T* factors,
                              T* y) {
  const std::int64_t n = s.features;
  parallel(s.rows() * n, grain(n), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      y[i] = math::depth_forward(s, i / n, i % n, x, weight, factors);
    }
  });
}

template <typename T>
void stochastic_depth_backward(const DepthShape& s, const T* gy, const T* x, const T* weight,
                               const T* factors, T* gx, T* gweight) {
  const std::int64_t n = s.features;
  if (gx != nullptr) {
    parallel(s.rows() * n, grain(n), 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        gx[i] = math::depth_grad_input(s, i / n, i % n, gy, weight, factors);
      }
    });
  }
  if (gweight != nullptr) {
    parallel(n * n, grain(s.rows()), 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        gweight[i] = math::depth_grad_weight(s, i / n, i % n, gy, x, factors);
      }
    });
  }
}

REMATCH_STOCHASTIC_DEPTH_KERNELS(REMATCH_INSTANTIATE);

}  // namespace rematch::cpu
