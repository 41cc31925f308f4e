#include "engine/ops/layer_norm.h"

#include "engine/kernels/layer_norm.h"
#include "engine/ops/norm_node.h"
#include "engine/tensor/kernel.h"

namespace rematch {

Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  constexpr std::string_view op = "layer_norm";
  if (is_bfloat16(x) || is_bfloat16(weight) || is_bfloat16(bias)) {
    return layer_norm(upcast(x), upcast(weight), upcast(bias), eps);
  }
  require(x.shape().rank() >= 1 && x.elements() > 0, op,
          [&] { return "a non-empty input of rank >= 1 expected, got " + to_string(x.shape()); });
  const std::int64_t cols = x.shape()[x.shape().rank() - 1];
  const std::int64_t rows = x.elements() / cols;
  for (const Tensor* t : {&weight, &bias}) {
    require_shape(op, "parameter", *t, {cols});
    require_same_dtype(op, x, *t);
  }
  auto [y, mean, rstd] = compute({op, {&x, &weight, &bias}, attributes(eps)}, [&] {
    std::array<Tensor, 3> out{Tensor::empty(x.shape(), x.dtype()), Tensor::empty({rows}, x.dtype()),
                              Tensor::empty({rows}, x.dtype())};
    for_floating(x.dtype(), op, [&]<class T>() {
      REMATCH_KERNEL(x, layer_norm_forward<T>, rows, cols, x.data<T>(), weight.data<T>(),
                     bias.data<T>(), static_cast<T>(eps), out[0].data<T>(), out[1].data<T>(),
                     out[2].data<T>());
    });
    return out;
  });
  record_norm(y, "LayerNormBackward", x, weight, bias, mean, rstd,
              [=](const Tensor& gy, auto... pointers) {
                REMATCH_KERNEL(gy, layer_norm_backward, rows, cols, pointers...);
              });
  return y;
}

}  // namespace rematch
