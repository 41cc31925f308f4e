#include "engine/kernels/moe.h"

#include "engine/cuda/runtime/launch.h"

namespace rematch::cuda {

namespace {

using math::MoeShape;

/// body(i) for each i in [0, n), a thread each.
template <typename Body>
__global__ void __launch_bounds__(kThreads) moe_kernel(std::int64_t n, Body body) {
  for (std::int64_t i = global_thread(); i < n; i += global_threads()) body(i);
}

template <typename Body>
void for_each(const char* kernel, std::int64_t n, const Body& body) {
  if (n == 0) return;
  moe_kernel<<<grid_for(n), kThreads, 0, stream()>>>(n, body);
  check_launch(kernel);
}

template <typename T>
struct Route {
  MoeShape s;
  const T* x;
  const T* router;
  T jitter;
  T* probabilities;
  std::int32_t* chosen;
  __device__ void operator()(std::int64_t r) const {
    math::moe_route(s, x + r * s.features, router, jitter, probabilities + r * s.experts,
                    chosen + r * s.top);
  }
};

template <typename T>
struct Mix {
  MoeShape s;
  const T* x;
  const T* experts;
  const T* probabilities;
  const std::int32_t* chosen;
  T* outputs;
  T* y;
  __device__ void operator()(std::int64_t i) const {
    const std::int64_t r = i / s.features;
    y[i] = math::moe_mix(s, i - r * s.features, x + r * s.features, experts,
                         probabilities + r * s.experts, chosen + r * s.top,
                         outputs + r * s.top * s.features);
  }
};

/// Operands of the gradients; `glogits` is filled first.
template <typename T>
struct Rows {
  MoeShape s;
  const T* gy;
  const T* x;
  const T* probabilities;
  const std::int32_t* chosen;
  T* glogits;
};

template <typename T>
struct LogitGradient {
  Rows<T> a;
  const T* outputs;
  __device__ void operator()(std::int64_t r) const {
    math::moe_grad_logits(a.s, a.gy + r * a.s.features, a.probabilities + r * a.s.experts,
                          a.chosen + r * a.s.top, outputs + r * a.s.top * a.s.features,
                          a.glogits + r * a.s.experts);
  }
};

template <typename T>
struct InputGradient {
  Rows<T> a;
  const T* router;
  const T* experts;
  T* gx;
  __device__ void operator()(std::int64_t i) const {
    const std::int64_t r = i / a.s.features;
    gx[i] = math::moe_grad_input(a.s, i - r * a.s.features, a.gy + r * a.s.features, router,
                                 experts, a.probabilities + r * a.s.experts, a.chosen + r * a.s.top,
                                 static_cast<const T*>(a.glogits) + r * a.s.experts);
  }
};

template <typename T>
struct RouterGradient {
  Rows<T> a;
  T* grouter;
  __device__ void operator()(std::int64_t i) const {
    const std::int64_t e = i / a.s.features;
    grouter[i] = math::moe_grad_router(a.s, a.s.rows, e, i - e * a.s.features, a.x,
                                       static_cast<const T*>(a.glogits), T(0));
  }
};

template <typename T>
struct ExpertGradient {
  Rows<T> a;
  T* gexperts;
  __device__ void operator()(std::int64_t i) const {
    const std::int64_t row = i / a.s.features;
    const std::int64_t e = row / a.s.features;
    gexperts[i] =
        math::moe_grad_expert(a.s, a.s.rows, e, row - e * a.s.features, i - row * a.s.features,
                              a.gy, a.x, a.probabilities, a.chosen, T(0));
  }
};

template <typename T>
struct Load {
  std::int64_t n;
  const std::int32_t* chosen;
  T* load;
  __device__ void operator()(std::int64_t e) const {
    load[e] = math::moe_load(n, e, chosen, load[e]);
  }
};

}  // namespace

template <typename T>
void moe_forward(const MoeShape& s, const T* x, const T* router, const T* experts, T jitter,
                 T* probabilities, std::int32_t* chosen, T* outputs, T* y) {
  for_each("moe_route", s.rows, Route<T>{s, x, router, jitter, probabilities, chosen});
  for_each("moe_mix", s.rows * s.features,
           Mix<T>{s, x, experts, probabilities, chosen, outputs, y});
}

template <typename T>
void moe_backward(const MoeShape& s, const T* gy, const T* x, const T* router, const T* experts,
                  const T* probabilities, const std::int32_t* chosen, const T* outputs, T* gx,
                  T* grouter, T* gexperts) {
  auto* const glogits =
      static_cast<T*>(workspace(static_cast<std::size_t>(s.rows * s.experts) * sizeof(T)));
  const Rows<T> rows{s, gy, x, probabilities, chosen, glogits};
  for_each("moe_grad_logits", s.rows, LogitGradient<T>{rows, outputs});
  if (gx != nullptr) {
    for_each("moe_grad_input", s.rows * s.features, InputGradient<T>{rows, router, experts, gx});
  }
  if (grouter != nullptr) {
    for_each("moe_grad_router", s.experts * s.features, RouterGradient<T>{rows, grouter});
  }
  if (gexperts != nullptr) {
    for_each("moe_grad_experts", s.experts * s.matrix(), ExpertGradient<T>{rows, gexperts});
  }
}

template <typename T>
void count_rows_of_experts(std::int64_t n, std::int64_t experts, const std::int32_t* chosen,
                           T* load) {
  for_each("count_rows_of_experts", experts, Load<T>{n, chosen, load});
}

REMATCH_MOE_KERNELS(REMATCH_INSTANTIATE);

}  // namespace rematch::cuda
