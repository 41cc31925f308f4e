#include "engine/ops/loss.h"

#include "engine/kernels/loss.h"
#include "engine/ops/support.h"
#include "engine/tensor/kernel.h"

namespace rematch {
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
  const auto gradient = [](const Tensor& gy, const Tensor& of_x, const Tensor& of_target) {
    Tensor gx = Tensor::empty(of_x.shape(), of_x.dtype());
    for_floating(of_x.dtype(), "MseBackward", [&]<class T>() {
      REMATCH_KERNEL(of_x, mse_backward<T>, of_x.elements(), gy.data<T>(), of_x.data<T>(),
                     of_target.data<T>(), gx.data<T>());
    });
    return gx;
  };
  record_unary(y, "MseBackward", x, gradient, x, target);
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
  const auto gradient = [](const Tensor& gy, const Tensor& logs, const Tensor& of_target) {
    Tensor gx = Tensor::empty(logs.shape(), logs.dtype());
    for_floating(logs.dtype(), "CrossEntropyBackward", [&]<class T>() {
      REMATCH_KERNEL(logs, cross_entropy_backward<T>, logs.shape()[0], logs.shape()[1],
                     gy.data<T>(), logs.data<T>(), of_target.data<std::int32_t>(), gx.data<T>());
    });
    return gx;
  };
  record_unary(y, "CrossEntropyBackward", x, gradient, log_probs, target);
  return y;
}

}  // namespace rematch
