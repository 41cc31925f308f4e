#include "engine/ops/rotary.h"

#include "engine/kernels/rotary.h"
#include "engine/ops/support.h"
#include "engine/tensor/kernel.h"

namespace rematch {
namespace {

constexpr std::string_view kRotary = "rotary";

Tensor rotated(const Tensor& x, const math::RotaryShape& s, double direction) {
  Tensor y = Tensor::empty(x.shape(), x.dtype());
  for_floating(x.dtype(), kRotary, [&]<class T>() {
    REMATCH_KERNEL(x, rotary<T>, s, direction, x.data<T>(), y.data<T>());
  });
  return y;
}

}  // namespace

Tensor rotary(const Tensor& x, std::int64_t features, std::int64_t heads) {
  if (is_bfloat16(x)) return rotary(upcast(x), features, heads);
  require_rank(kRotary, "x", x, 3);
  require_floating(kRotary, x);
  const Shape& shape = x.shape();
  require(
      heads >= 1 && features / 2 >= heads && features <= shape[2] && features % (2 * heads) == 0,
      kRotary, [&] {
        return "an even number of features for each of " + std::to_string(heads) +
               " heads expected, at most " + std::to_string(shape[2]) + " in all, got " +
               std::to_string(features);
      });
  const math::RotaryShape s{.batch = shape[0],
                            .positions = shape[1],
                            .width = shape[2],
                            .features = features,
                            .heads = heads};
  Tensor y =
      compute_one({kRotary, {&x}, attributes(features, heads)}, [&] { return rotated(x, s, 1); });
  record_unary(y, "RotaryBackward", x, [s](const Tensor& gy) { return rotated(gy, s, -1); });
  return y;
}

}  // namespace rematch
