#include "engine/ops/rms_norm.h"

#include "engine/kernels/layer_norm.h"
#include "engine/ops/norm_node.h"
#include "engine/tensor/kernel.h"

namespace rematch {

Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps) {
  constexpr std::string_view op = "rms_norm";
  if (is_bfloat16(x) || is_bfloat16(weight)) return rms_norm(upcast(x), upcast(weight), eps);
  require(x.shape().rank() >= 1 && x.elements() > 0, op,
          [&] { return "a non-empty input of rank >= 1 expected, got " + to_string(x.shape()); });
  const std::int64_t cols = x.shape()[x.shape().rank() - 1];
  const std::int64_t rows = x.elements() / cols;
  require_shape(op, "parameter", weight, {cols});
  require_same_dtype(op, x, weight);
  auto [y, factor] = compute({op, {&x, &weight}, attributes(eps)}, [&] {
    std::array<Tensor, 2> out{Tensor::empty(x.shape(), x.dtype()),
                              Tensor::empty({rows}, x.dtype())};
    for_floating(x.dtype(), op, [&]<class T>() {
      T* const no_mean = nullptr;
      const T* const no_bias = nullptr;
      REMATCH_KERNEL(x, layer_norm_forward<T>, rows, cols, x.data<T>(), weight.data<T>(), no_bias,
                     static_cast<T>(eps), out[0].data<T>(), no_mean, out[1].data<T>());
    });
    return out;
  });
  record_norm(y, "RmsNormBackward", x, weight, {}, {}, factor,
              [=](const Tensor& gy, auto... pointers) {
                REMATCH_KERNEL(gy, layer_norm_backward, rows, cols, pointers...);
              });
  return y;
}

}  // namespace rematch
