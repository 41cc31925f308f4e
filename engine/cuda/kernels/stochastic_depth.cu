#include "engine/kernels/stochastic_depth.h"

#include "engine/cuda/runtime/launch.h"

namespace rematch::cuda {

namespace {

using math::DepthShape;

template <typename T>
struct Exit {
  DepthShape s;
  const T* x;
  __device__ void operator()(std::int64_t n, T& factor) const {
    factor = math::exit_factor(s, n, x);
  }
};

template <typename T>
struct Branch {
  DepthShape s;
  const T* x;
  const T* weight;
  const T* factors;
  __device__ void operator()(std::int64_t i, T& y) const {
    const std::int64_t row = i / s.features;
    y = math::depth_forward(s, row, i - row * s.features, x, weight, factors);
  }
};

template <typename T>
struct InputGradient {
  DepthShape s;
  const T* gy;
  const T* weight;
  const T* factors;
  __device__ void operator()(std::int64_t i, T& gx) const {
    const std::int64_t row = i / s.features;
    gx = math::depth_grad_input(s, row, i - row * s.features, gy, weight, factors);
  }
};

template <typename T>
struct WeightGradient {
  DepthShape s;
  const T* gy;
  const T* x;
  const T* factors;
  __device__ void operator()(std::int64_t i, T& gweight) const {
    const std::int64_t g = i / s.features;
    gweight = math::depth_grad_weight(s, g, i - g * s.features, gy, x, factors);
  }
};

}  // namespace

template <typename T>
void exit_factors(const DepthShape& s, const T* x, T* factors) {
  visit<1>("exit_factors", s.samples, Exit<T>{s, x}, Out<T>{factors});
}

template <typename T>
void stochastic_depth_forward(const DepthShape& s, const T* x, const T* weight, const T* factors,
                              T* y) {
  visit<1>("stochastic_depth_forward", s.rows() * s.features, Branch<T>{s, x, weight, factors},
           Out<T>{y});
}

template <typename T>
void stochastic_depth_backward(const DepthShape& s, const T* gy, const T* x, const T* weight,
                               const T* factors, T* gx, T* gweight) {
  if (gx != nullptr) {
    visit<1>("stochastic_depth_grad_input", s.rows() * s.features,
             InputGradient<T>{s, gy, weight, factors}, Out<T>{gx});
  }
  if (gweight != nullptr) {
    visit<1>("stochastic_depth_grad_weight", s.features * s.features,
             WeightGradient<T>{s, gy, x, factors}, Out<T>{gweight});
  }
}

REMATCH_STOCHASTIC_DEPTH_KERNELS(REMATCH_INSTANTIATE);

}  // namespace rematch::cuda
