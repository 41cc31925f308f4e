#include "engine/ops/delayed_scaling.h"

#include "engine/ambient/state_reader.h"
#include "engine/cpu/delayed_scaling.h"
#include "engine/cuda/delayed_scaling.h"
#include "engine/ops/support.h"
#include "engine/tensor/kernel.h"

namespace rematch {
namespace {

Tensor quotient(const Tensor& x, const Tensor& scale) {
  Tensor y = Tensor::empty(x.shape(), x.dtype());
  for_floating(x.dtype(), "delayed_scaling", [&]<class T>() {
    REMATCH_KERNEL(x, divide_by<T>, x.elements(), x.data<T>(), scale.data<T>(), y.data<T>());
  });
  return y;
}

class DelayedScalingBackward final : public Node {
 public:
  DelayedScalingBackward(const Tensor& x, const Tensor& scale) : Node(1) {
    connect(*this, {&x});
    scale_.save(scale);
  }
  std::string_view name() const override { return "DelayedScalingBackward"; }
  void release() noexcept override { scale_.reset(); }
  void vjp(std::span<Tensor> grads_out, std::span<Tensor> grads_in) override {
    grads_in[0] = quotient(grads_out[0], scale_.get(name()));
  }

 private:
  SavedTensor scale_;
};

}  // namespace

Tensor delayed_scaling(const Tensor& x, Tensor& scale, bool train) {
  constexpr std::string_view op = "delayed_scaling";
  if (is_bfloat16(x)) return delayed_scaling(upcast(x), scale, train);
  require_shape(op, "scale", scale, {1});
  require_same_dtype(op, x, scale);
  const Tensor read = read_state(scale);
  // The forward has already counted this batch.
  const bool update = train && !ambient().recomputing;
  if (update) scale.storage()->before_write();
  Tensor y = compute_one({op, {&x}, attributes(train)}, [&] { return quotient(x, read); });
  if (update) {
    for_floating(x.dtype(), op, [&]<class T>() {
      REMATCH_KERNEL(x, average_magnitude<T>, x.elements(), x.data<T>(), scale.data<T>());
    });
    scale.storage()->bump_version();
  }
  record<DelayedScalingBackward>(y, {&x}, x, read);
  return y;
}

}  // namespace rematch
