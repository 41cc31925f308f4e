#include "engine/ops/group_norm.h"

#include "engine/kernels/group_norm.h"
#include "engine/ops/norm_node.h"
#include "engine/tensor/kernel.h"

namespace rematch {

Tensor group_norm(const Tensor& x, std::int64_t groups, const Tensor& weight, const Tensor& bias,
                  double eps) {
  constexpr std::string_view op = "group_norm";
  if (is_bfloat16(x) || is_bfloat16(weight) || is_bfloat16(bias)) {
    return group_norm(upcast(x), groups, upcast(weight), upcast(bias), eps);
  }
  const Shape& shape = x.shape();
  require((shape.rank() == 2 || shape.rank() == 4) && x.elements() > 0, op,
          [&] { return "a non-empty input of rank 2 or 4 expected, got " + to_string(shape); });
  const std::int64_t n = shape[0];
  const std::int64_t c = shape[1];
  const std::int64_t s = shape.rank() == 4 ? shape[2] * shape[3] : 1;
  require(groups >= 1 && c % groups == 0, op, [&] {
    return "groups that divide " + std::to_string(c) + " channels expected, got " +
           std::to_string(groups);
  });
  for (const Tensor* t : {&weight, &bias}) {
    require_shape(op, "parameter", *t, {c});
    require_same_dtype(op, x, *t);
  }
  auto [y, mean, rstd] = compute({op, {&x, &weight, &bias}, attributes(groups, eps)}, [&] {
    std::array<Tensor, 3> out{Tensor::empty(shape, x.dtype()),
                              Tensor::empty({n * groups}, x.dtype()),
                              Tensor::empty({n * groups}, x.dtype())};
    for_floating(x.dtype(), op, [&]<class T>() {
      REMATCH_KERNEL(x, group_norm_forward<T>, n, c, s, groups, x.data<T>(), weight.data<T>(),
                     bias.data<T>(), static_cast<T>(eps), out[0].data<T>(), out[1].data<T>(),
                     out[2].data<T>());
    });
    return out;
  });
  record_norm(y, "GroupNormBackward", x, weight, bias, mean, rstd,
              [=](const Tensor& gy, auto... pointers) {
                REMATCH_KERNEL(gy, group_norm_backward, n, c, s, groups, pointers...);
              });
  return y;
}

}  // namespace rematch
