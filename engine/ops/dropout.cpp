#include "engine/ops/dropout.h"

#include "engine/kernels/random.h"
#include "engine/ops/draw.h"
#include "engine/ops/support.h"
#include "engine/tensor/kernel.h"

namespace rematch {
Tensor dropout(const Tensor& x, double p, const RandomOptions& options) {
  require(p >= 0 && p < 1, "dropout",
          [&] { return "probability in [0, 1) expected, got " + std::to_string(p); });
  if (p == 0 || !options.train) return x;
  if (is_bfloat16(x)) return dropout(upcast(x), p, options);
  require_floating("dropout", x);
  const OpCall call{"dropout", {&x}, attributes(p, options.stream)};
  auto [y, mask] = compute_draw(call, x.elements(), options.stream, [&](const Generator& g) {
    std::array<Tensor, 2> out{Tensor::empty(x.shape(), x.dtype()),
                              Tensor::empty(x.shape(), DType::uint8)};
    for_floating(x.dtype(), "dropout", [&]<class T>() {
      REMATCH_KERNEL(x, dropout_forward<T>, x.elements(), x.data<T>(), p, g.seed, g.stream,
                     g.offset, out[1].data<std::uint8_t>(), out[0].data<T>());
    });
    report_draw(g, out[1]);
    return out;
  });
  const auto gradient = [p](const Tensor& gy, const Tensor& kept) {
    Tensor gx = Tensor::empty(gy.shape(), gy.dtype());
    for_floating(gy.dtype(), "DropoutBackward", [&]<class T>() {
      REMATCH_KERNEL(gy, dropout_backward<T>, gy.elements(), gy.data<T>(),
                     kept.data<std::uint8_t>(), p, gx.data<T>());
    });
    return gx;
  };
  record_unary(y, "DropoutBackward", x, gradient, mask);
  return y;
}

}  // namespace rematch
