#include "engine/ops/view.h"

#include "engine/ops/support.h"
#include "engine/tensor/accumulate.h"

namespace rematch {
namespace {

class ReshapeBackward final : public Node {
 public:
  explicit ReshapeBackward(const Tensor& x) : Node(1), shape_(x.shape()) { connect(*this, {&x}); }
  std::string_view name() const override { return "ReshapeBackward"; }
  void vjp(std::span<Tensor> grads_out, std::span<Tensor> grads_in) override {
    grads_in[0] = reshape_alias(grads_out[0], shape_);
  }

 private:
  Shape shape_;
};

}  // namespace

Tensor reshape(const Tensor& x, const Shape& shape) {
  require(x.elements() == shape.elements(), "reshape", [&] {
    return "a shape of " + std::to_string(x.elements()) + " elements expected, got " +
           to_string(shape);
  });
  announce({"reshape", {&x}, 0, false});
  Tensor y = reshape_alias(x, shape);
  // Views chain to one root, so that a write through any of them is seen by all.
  y.impl()->base = x.impl()->base ? x.impl()->base : x.shared_impl();
  y.impl()->view_version = x.version();
  record<ReshapeBackward>(y, {&x}, x);
  return y;
}

Tensor flatten(const Tensor& x) {
  const Shape& s = x.shape();
  require(s.rank() >= 1, "flatten", [] { return std::string("a tensor with a batch expected"); });
  if (s.rank() == 2) return x;
  std::int64_t columns = 1;
  for (int i = 1; i < s.rank(); ++i) columns *= s[i];
  return reshape(x, {s[0], columns});
}

}  // namespace rematch
