#include "engine/ops/pool2d.h"

#include "engine/kernels/pool2d.h"
#include "engine/ops/support.h"
#include "engine/tensor/kernel.h"

namespace rematch {
namespace {

Pool2dShape checked_shape(std::string_view op, const Tensor& x, std::int64_t kernel,
                          std::int64_t stride, std::int64_t padding) {
  require_rank(op, "input", x, 4);
  require(kernel >= 1 && stride >= 1 && padding >= 0 && 2 * padding <= kernel, op, [&] {
    return "kernel >= 1, stride >= 1 and 0 <= padding <= kernel / 2 expected, got " +
           std::to_string(kernel) + ", " + std::to_string(stride) + ", " + std::to_string(padding);
  });
  const Shape& s = x.shape();
  require(s[2] + 2 * padding >= kernel && s[3] + 2 * padding >= kernel, op, [&] {
    return "window " + std::to_string(kernel) + " does not fit the input " + to_string(s) +
           " padded by " + std::to_string(padding);
  });
  return {s[0], s[1], s[2], s[3], kernel, kernel, stride, stride, padding, padding};
}

}  // namespace

Tensor max_pool2d(const Tensor& x, std::int64_t kernel, std::int64_t stride, std::int64_t padding) {
  if (is_bfloat16(x)) return max_pool2d(upcast(x), kernel, stride, padding);
  const Pool2dShape s = checked_shape("max_pool2d", x, kernel, stride, padding);
  const Shape out{s.n, s.c, s.out_h(), s.out_w()};
  const OpCall call{"max_pool2d", {&x}, attributes(kernel, stride, padding)};
  auto [y, indices] = compute(call, [&] {
    std::array<Tensor, 2> made{Tensor::empty(out, x.dtype()), Tensor::empty(out, DType::int32)};
    for_floating(x.dtype(), "max_pool2d", [&]<class T>() {
      REMATCH_KERNEL(x, max_pool2d_forward<T>, s, x.data<T>(), made[0].data<T>(),
                     made[1].data<std::int32_t>());
    });
    return made;
  });
  const auto gradient = [s](const Tensor& gy, const Tensor& of_maxima) {
    Tensor gx = Tensor::empty({s.n, s.c, s.h, s.w}, gy.dtype());
    for_floating(gy.dtype(), "MaxPool2dBackward", [&]<class T>() {
      REMATCH_KERNEL(gy, max_pool2d_backward<T>, s, gy.data<T>(), of_maxima.data<std::int32_t>(),
                     gx.data<T>());
    });
    return gx;
  };
  record_unary(y, "MaxPool2dBackward", x, gradient, indices);
  return y;
}

Tensor avg_pool2d(const Tensor& x, std::int64_t kernel, std::int64_t stride, std::int64_t padding) {
  if (is_bfloat16(x)) return avg_pool2d(upcast(x), kernel, stride, padding);
  const Pool2dShape s = checked_shape("avg_pool2d", x, kernel, stride, padding);
  const OpCall call{"avg_pool2d", {&x}, attributes(kernel, stride, padding)};
  Tensor y = compute_one(call, [&] {
    Tensor out = Tensor::empty({s.n, s.c, s.out_h(), s.out_w()}, x.dtype());
    for_floating(x.dtype(), "avg_pool2d", [&]<class T>() {
      REMATCH_KERNEL(x, avg_pool2d_forward<T>, s, x.data<T>(), out.data<T>());
    });
    return out;
  });
  record_unary(y, "AvgPool2dBackward", x, [s](const Tensor& gy) {
    Tensor gx = Tensor::empty({s.n, s.c, s.h, s.w}, gy.dtype());
    for_floating(gy.dtype(), "AvgPool2dBackward", [&]<class T>() {
      REMATCH_KERNEL(gy, avg_pool2d_backward<T>, s, gy.data<T>(), gx.data<T>());
    });
    return gx;
  });
  return y;
}

}  // namespace rematch
