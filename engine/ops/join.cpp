#include "engine/ops/join.h"

#include "engine/cpu/concat.h"
#include "engine/cuda/concat.h"
#include "engine/ops/support.h"
#include "engine/tensor/kernel.h"

namespace rematch {
namespace {

/// Seen along dimension 1, a tensor is `outer` rows of extent * inner elements.
struct Columns {
  std::int64_t outer;
  std::int64_t inner;
};

Columns columns(const Shape& shape) {
  std::int64_t inner = 1;
  for (int i = 2; i < shape.rank(); ++i) inner *= shape[i];
  return {shape[0], inner};
}

Shape with_extent(const Shape& shape, std::int64_t extent) {
  std::array<std::int64_t, Shape::kMaxRank> dims{};
  std::copy(shape.dims().begin(), shape.dims().end(), dims.begin());
  dims[1] = extent;
  return Shape(std::span<const std::int64_t>(dims.data(), shape.dims().size()));
}

class ConcatBackward final : public Node {
 public:
  ConcatBackward(const Tensor& a, const Tensor& b) : Node(1), a_(a.shape()), b_(b.shape()) {
    connect(*this, {&a, &b});
  }
  std::string_view name() const override { return "ConcatBackward"; }
  void vjp(std::span<Tensor> grads_out, std::span<Tensor> grads_in) override {
    const Tensor& gy = grads_out[0];
    const Columns c = columns(a_);
    if (needs(0)) grads_in[0] = Tensor::empty(a_, gy.dtype());
    if (needs(1)) grads_in[1] = Tensor::empty(b_, gy.dtype());
    for_floating(gy.dtype(), name(), [&]<class T>() {
      REMATCH_KERNEL(gy, split2<T>, c.outer, a_[1] * c.inner, b_[1] * c.inner, gy.data<T>(),
                     needs(0) ? grads_in[0].data<T>() : nullptr,
                     needs(1) ? grads_in[1].data<T>() : nullptr);
    });
  }

 private:
  Shape a_;
  Shape b_;
};

class SplitBackward final : public Node {
 public:
  SplitBackward(const Tensor& x, std::int64_t first) : Node(2), shape_(x.shape()), first_(first) {
    connect(*this, {&x});
  }
  std::string_view name() const override { return "SplitBackward"; }
  void vjp(std::span<Tensor> grads_out, std::span<Tensor> grads_in) override {
    const DType dtype = (grads_out[0].defined() ? grads_out[0] : grads_out[1]).dtype();
    const Columns c = columns(shape_);
    // An unused output contributes zeros, not ones.
    for (const int i : {0, 1}) {
      Tensor& g = grads_out[static_cast<std::size_t>(i)];
      if (!g.defined()) {
        g = Tensor::zeros(with_extent(shape_, i == 0 ? first_ : shape_[1] - first_), dtype);
      }
    }
    grads_in[0] = Tensor::empty(shape_, dtype);
    for_floating(dtype, name(), [&]<class T>() {
      REMATCH_KERNEL(grads_out[0], concat2<T>, c.outer, first_ * c.inner,
                     (shape_[1] - first_) * c.inner, grads_out[0].data<T>(), grads_out[1].data<T>(),
                     grads_in[0].data<T>());
    });
  }

 private:
  Shape shape_;
  std::int64_t first_;
};

}  // namespace

Tensor concat(const Tensor& a, const Tensor& b) {
  constexpr std::string_view op = "concat";
  if (is_bfloat16(a) || is_bfloat16(b)) {
    const Tensor wide_a = upcast(a);
    return concat(wide_a, upcast(b));
  }
  require(a.shape().rank() >= 2, op,
          [&] { return "operands of rank >= 2 expected, got " + to_string(a.shape()); });
  require(b.shape().rank() == a.shape().rank() && with_extent(b.shape(), a.shape()[1]) == a.shape(),
          op, [&] {
            return "operands that agree outside dimension 1 expected, got " + to_string(a.shape()) +
                   " and " + to_string(b.shape());
          });
  require_same_dtype(op, a, b);
  const Columns c = columns(a.shape());
  Tensor y = compute_one({op, {&a, &b}}, [&] {
    Tensor out = Tensor::empty(with_extent(a.shape(), a.shape()[1] + b.shape()[1]), a.dtype());
    for_floating(a.dtype(), op, [&]<class T>() {
      REMATCH_KERNEL(a, concat2<T>, c.outer, a.shape()[1] * c.inner, b.shape()[1] * c.inner,
                     a.data<T>(), b.data<T>(), out.data<T>());
    });
    return out;
  });
  record<ConcatBackward>(y, {&a, &b}, a, b);
  return y;
}

std::array<Tensor, 2> split(const Tensor& x, std::int64_t first) {
  constexpr std::string_view op = "split";
  if (is_bfloat16(x)) return split(upcast(x), first);
  require(x.shape().rank() >= 2 && first >= 1 && first < x.shape()[1], op, [&] {
    return "1 <= first < extent of dimension 1 expected, got " + std::to_string(first) + " and " +
           to_string(x.shape());
  });
  const Columns c = columns(x.shape());
  const std::int64_t rest = x.shape()[1] - first;
  std::array<Tensor, 2> y = compute({op, {&x}, attributes(first)}, [&] {
    std::array<Tensor, 2> out{Tensor::empty(with_extent(x.shape(), first), x.dtype()),
                              Tensor::empty(with_extent(x.shape(), rest), x.dtype())};
    for_floating(x.dtype(), op, [&]<class T>() {
      REMATCH_KERNEL(x, split2<T>, c.outer, first * c.inner, rest * c.inner, x.data<T>(),
                     out[0].data<T>(), out[1].data<T>());
    });
    return out;
  });
  if (should_record({&x})) {
    auto node = std::make_shared<SplitBackward>(x, first);
    set_history(y[0], node, 0);
    set_history(y[1], node, 1);
  }
  return y;
}

}  // namespace rematch
