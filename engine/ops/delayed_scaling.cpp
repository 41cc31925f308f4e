#include "engine/ops/delayed_scaling.h"

#include "engine/kernels/delayed_scaling.h"
#include "engine/math/delayed_scaling.h"
#include "engine/ops/support.h"
#include "engine/tensor/kernel.h"
#include "engine/tensor/state_reader.h"

namespace rematch {
namespace {

constexpr std::string_view kScaling = "delayed_scaling";

Tensor quotient(const Tensor& x, const Tensor& scale) {
  Tensor y = Tensor::empty(x.shape(), x.dtype());
  for_floating(x.dtype(), kScaling, [&]<class T>() {
    REMATCH_KERNEL(x, divide_by<T>, x.elements(), x.data<T>(), scale.data<T>(), y.data<T>());
  });
  return y;
}

/// compute(), and then move_on(), which writes to the state, unless the forward has already counted
/// this batch.
template <class Compute, class MoveOn>
Tensor scaled(const Tensor& x, Tensor& state, bool train, const Compute& compute,
              const MoveOn& move_on) {
  const bool moves = train && !ambient().recomputing;
  if (moves) state.storage()->before_write();
  Tensor y = compute_one({kScaling, {&x}, attributes(train)}, compute);
  if (moves) {
    for_floating(x.dtype(), kScaling, move_on);
    state.storage()->bump_version();
  }
  return y;
}

}  // namespace

Tensor delayed_scaling(const Tensor& x, Tensor& scale, bool train) {
  if (is_bfloat16(x)) return delayed_scaling(upcast(x), scale, train);
  require_shape(kScaling, "scale", scale, {1});
  require_same_dtype(kScaling, x, scale);
  const StateRead read(scale);
  Tensor y = scaled(
      x, scale, train, [&] { return quotient(x, read.value); },
      [&]<class T>() {
        REMATCH_KERNEL(x, average_magnitude<T>, x.elements(), x.data<T>(), scale.data<T>());
      });
  record_unary(y, "DelayedScalingBackward", x, quotient, read.value);
  return y;
}

Tensor delayed_float8(const Tensor& x, Tensor& history, bool train) {
  if (is_bfloat16(x)) return delayed_float8(upcast(x), history, train);
  require_shape(kScaling, "history", history, {math::kFloat8History});
  require_same_dtype(kScaling, x, history);
  const StateRead read(history);
  const auto rounded = [&] {
    Tensor out = Tensor::empty(x.shape(), x.dtype());
    for_floating(x.dtype(), kScaling, [&]<class T>() {
      REMATCH_KERNEL(x, round_to_float8<T>, x.elements(), x.data<T>(), read.value.data<T>(),
                     out.data<T>());
    });
    return out;
  };
  Tensor y = scaled(x, history, train, rounded, [&]<class T>() {
    REMATCH_KERNEL(x, remember_magnitude<T>, x.elements(), x.data<T>(), history.data<T>());
  });
  record_unary(y, "DelayedFloat8Backward", x, [](const Tensor& gy) { return gy; });
  return y;
}

}  // namespace rematch
