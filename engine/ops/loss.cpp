#include "engine/ops/loss.h"

#include "engine/kernels/loss.h"
#include "engine/ops/support.h"
#include "engine/tensor/kernel.h"

namespace rematch {
namespace {

class MseBackward final : public Node {
 public:
  MseBackward(const Tensor& x, const Tensor& target) : Node(1) {
    connect(*this, {&x});
    x_.save(x);
    target_.save(target);
  }
  std::string_view name() const override { return "MseBackward"; }
  void release() noexcept override {
    x_.reset();
    target_.reset();
  }
  void vjp(std::span<Tensor> grads_out, std::span<Tensor> grads_in) override {
    const Tensor x = x_.get(name());
    const Tensor target = target_.get(name());
    grads_in[0] = Tensor::empty(x.shape(), x.dtype());
    for_floating(x.dtype(), name(), [&]<class T>() {
      REMATCH_KERNEL(x, mse_backward<T>, x.elements(), grads_out[0].data<T>(), x.data<T>(),
                     target.data<T>(), grads_in[0].data<T>());
    });
  }

 private:
  SavedTensor x_;
  SavedTensor target_;
};

class CrossEntropyBackward final : public Node {
 public:
  CrossEntropyBackward(const Tensor& x, const Tensor& log_probs, const Tensor& target) : Node(1) {
    connect(*this, {&x});
    log_probs_.save(log_probs);
    target_.save(target);
  }
  std::string_view name() const override { return "CrossEntropyBackward"; }
  void release() noexcept override {
    log_probs_.reset();
    target_.reset();
  }
  void vjp(std::span<Tensor> grads_out, std::span<Tensor> grads_in) override {
    const Tensor log_probs = log_probs_.get(name());
    const Tensor target = target_.get(name());
    grads_in[0] = Tensor::empty(log_probs.shape(), log_probs.dtype());
    for_floating(log_probs.dtype(), name(), [&]<class T>() {
      REMATCH_KERNEL(log_probs, cross_entropy_backward<T>, log_probs.shape()[0],
                     log_probs.shape()[1], grads_out[0].data<T>(), log_probs.data<T>(),
                     target.data<std::int32_t>(), grads_in[0].data<T>());
    });
  }

 private:
  SavedTensor log_probs_;
  SavedTensor target_;
};

}  // namespace

Tensor mse_loss(const Tensor& x, const Tensor& target) {
  constexpr std::string_view op = "mse_loss";
  if (is_bfloat16(x) || is_bfloat16(target)) return mse_loss(upcast(x), upcast(target));
  require_shape(op, "target", target, x.shape());
  require_same_dtype(op, x, target);
  require(x.elements() > 0, op, [] { return std::string("a non-empty input expected"); });
  require(!target.requires_grad(), op,
          [] { return std::string("a target without requires_grad expected; detach() it"); });
  Tensor y = compute_one({op, {&x, &target}}, [&] {
    Tensor out = Tensor::empty({}, x.dtype());
    for_floating(x.dtype(), op, [&]<class T>() {
      REMATCH_KERNEL(x, mse_forward<T>, x.elements(), x.data<T>(), target.data<T>(), out.data<T>());
    });
    return out;
  });
  record<MseBackward>(y, {&x}, x, target);
  return y;
}

Tensor cross_entropy(const Tensor& x, const Tensor& target) {
  constexpr std::string_view op = "cross_entropy";
  if (is_bfloat16(x)) return cross_entropy(upcast(x), target);
  require_rank(op, "input", x, 2);
  require(x.elements() > 0, op, [] { return std::string("a non-empty input expected"); });
  require_shape(op, "target", target, {x.shape()[0]});
  require(target.device() == x.device(), op,
          [] { return std::string("a target on the device of the input expected"); });
  const std::int64_t classes = x.shape()[1];
  // On a device the host does not wait for this check; an invalid class makes the loss NaN there.
  const std::int64_t checked = target.device() == Device::cpu ? target.elements() : 0;
  for (std::int64_t i = 0; i < checked; ++i) {
    const std::int32_t t = target.data<std::int32_t>()[i];
    require(t >= 0 && t < classes, op, [&] {
      return "class in [0, " + std::to_string(classes) + ") expected in row " + std::to_string(i) +
             ", got " + std::to_string(t);
    });
  }
  auto [y, log_probs] = compute({op, {&x, &target}}, [&] {
    std::array<Tensor, 2> out{Tensor::empty({}, x.dtype()), Tensor::empty(x.shape(), x.dtype())};
    for_floating(x.dtype(), op, [&]<class T>() {
      REMATCH_KERNEL(x, cross_entropy_forward<T>, x.shape()[0], classes, x.data<T>(),
                     target.data<std::int32_t>(), out[1].data<T>(), out[0].data<T>());
    });
    return out;
  });
  record<CrossEntropyBackward>(y, {&x}, x, log_probs, target);
  return y;
}

}  // namespace rematch
