#include "engine/cuda/optimizer.h"

#include "engine/cuda/launch.h"
#include "engine/math/update.h"

namespace rematch::cuda {

namespace {

template <typename T>
struct Sgd {
  T lr;
  __device__ void operator()(std::int64_t /*i*/, T g, T& w) const { w = math::sgd(w, g, lr); }
};

template <typename T>
struct SgdFirst {
  T lr;
  __device__ void operator()(std::int64_t /*i*/, T g, T& buf, T& w) const {
    buf = g;
    w = math::sgd(w, g, lr);
  }
};

template <typename T>
struct SgdMomentum {
  T lr;
  T momentum;
  __device__ void operator()(std::int64_t /*i*/, T g, T& buf, T& w) const {
    buf = math::sgd_momentum(buf, g, momentum);
    w = math::sgd(w, buf, lr);
  }
};

template <typename T>
struct Adam {
  math::AdamStep<T> step;
  __device__ void operator()(std::int64_t /*i*/, T g, T& m, T& v, T& w) const {
    step.apply(g, m, v, w);
  }
};

}  // namespace

template <typename T>
void sgd_step(std::int64_t n, T lr, T momentum, bool first, const T* g, T* buf, T* w) {
  constexpr int kWidth = kVector<T>;
  if (buf == nullptr) {
    visit<kWidth>("sgd_step", n, Sgd<T>{lr}, In<T>{g}, InOut<T>{w});
  } else if (first) {
    visit<kWidth>("sgd_step", n, SgdFirst<T>{lr}, In<T>{g}, Out<T>{buf}, InOut<T>{w});
  } else {
    visit<kWidth>("sgd_step", n, SgdMomentum<T>{lr, momentum}, In<T>{g}, InOut<T>{buf},
                  InOut<T>{w});
  }
}

template <typename T>
void adam_step(std::int64_t n, double lr, double b1, double b2, double eps, std::int64_t t,
               const T* g, T* m, T* v, T* w) {
  visit<kVector<T>>("adam_step", n, Adam<T>{math::AdamStep<T>(lr, b1, b2, eps, t)}, In<T>{g},
                    InOut<T>{m}, InOut<T>{v}, InOut<T>{w});
}

#define REMATCH_INSTANTIATE(T)                                                                  \
  template void sgd_step(std::int64_t, T, T, bool, const T*, T*, T*);                           \
  template void adam_step(std::int64_t, double, double, double, double, std::int64_t, const T*, \
                          T*, T*, T*);
REMATCH_INSTANTIATE(float)
REMATCH_INSTANTIATE(double)
#undef REMATCH_INSTANTIATE

}  // namespace rematch::cuda
