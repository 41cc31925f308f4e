#include "engine/kernels/delayed_scaling.h"

#include "engine/cpu/threads.h"
#include "engine/math/delayed_scaling.h"

namespace rematch::cpu {

namespace {

/// NaN left out; 0 for none.
template <typename T>
T largest_magnitude(std::int64_t n, const T* x) {
  // Lanes, so that the loop vectorises; a maximum has the same bits in every order.
  constexpr std::int64_t kLanes = 16;
  T lane[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (std::int64_t l = 0; l < kLanes; ++l) {
      lane[l] = math::larger_magnitude(lane[l], x[i + l]);
    }
  }
  for (; i < n; ++i) lane[0] = math::larger_magnitude(lane[0], x[i]);
  T top = 0;
  for (const T value : lane) top = math::larger_magnitude(top, value);
  return top;
}

}  // namespace

template <typename T>
void divide_by(std::int64_t n, const T* x, const T* scale, T* y) {
  const T s = *scale;
  parallel_elements(n, [=](std::int64_t i) { y[i] = x[i] / s; });
}

template <typename T>
void average_magnitude(std::int64_t n, const T* x, T* average) {
  *average = math::moved_average(*average, largest_magnitude(n, x));
}

template <typename T>
void round_to_float8(std::int64_t n, const T* x, const T* history, T* y) {
  const T scale = math::float8_scale(history);
  parallel_elements(n, [=](std::int64_t i) { y[i] = math::through_float8(x[i], scale); });
}

template <typename T>
void remember_magnitude(std::int64_t n, const T* x, T* history) {
  math::remember(history, largest_magnitude(n, x));
}

REMATCH_DELAYED_SCALING_KERNELS(REMATCH_INSTANTIATE);

}  // namespace rematch::cpu
