#include "engine/ops/join.h"

#include "engine/kernels/concat.h"
#include "engine/ops/support.h"
#include "engine/tensor/kernel.h"

namespace rematch {
namespace {

/// Seen along a dimension, a tensor is `outer` rows of extent * inner elements.
struct Columns {
  std::int64_t outer;
  std::int64_t inner;
};

Columns columns(const Shape& shape, int dimension) {
  Columns c{1, 1};
  for (int i = 0; i < dimension; ++i) c.outer *= shape[i];
  for (int i = dimension + 1; i < shape.rank(); ++i) c.inner *= shape[i];
  return c;
}

class ConcatBackward final : public Node {
 public:
  ConcatBackward(const Tensor& a, const Tensor& b, int dimension)
      : Node(1), a_(a.shape()), b_(b.shape()), dimension_(dimension) {
    connect(*this, {&a, &b});
  }
  std::string_view name() const override { return "ConcatBackward"; }
  void vjp(std::span<Tensor> grads_out, std::span<Tensor> grads_in) override {
    const Tensor& gy = grads_out[0];
    const Columns c = columns(a_, dimension_);
    if (needs(0)) grads_in[0] = Tensor::empty(a_, gy.dtype());
    if (needs(1)) grads_in[1] = Tensor::empty(b_, gy.dtype());
    for_floating(gy.dtype(), name(), [&]<class T>() {
      REMATCH_KERNEL(gy, split2<T>, c.outer, a_[dimension_] * c.inner, b_[dimension_] * c.inner,
                     gy.data<T>(), needs(0) ? grads_in[0].data<T>() : nullptr,
                     needs(1) ? grads_in[1].data<T>() : nullptr);
    });
  }

 private:
  Shape a_;
  Shape b_;
  int dimension_;
};

class SplitBackward final : public Node {
 public:
  SplitBackward(const Tensor& x, std::int64_t first, int dimension)
      : Node(2), shape_(x.shape()), first_(first), dimension_(dimension) {
    connect(*this, {&x});
  }
  std::string_view name() const override { return "SplitBackward"; }
  void vjp(std::span<Tensor> grads_out, std::span<Tensor> grads_in) override {
    const DType dtype = (grads_out[0].defined() ? grads_out[0] : grads_out[1]).dtype();
    const Columns c = columns(shape_, dimension_);
    // An unused output contributes zeros, not ones.
    for (const int i : {0, 1}) {
      Tensor& g = grads_out[static_cast<std::size_t>(i)];
      if (!g.defined()) {
        g = Tensor::zeros(
            shape_.with_extent(dimension_, i == 0 ? first_ : shape_[dimension_] - first_), dtype);
      }
    }
    grads_in[0] = Tensor::empty(shape_, dtype);
    for_floating(dtype, name(), [&]<class T>() {
      REMATCH_KERNEL(grads_out[0], concat2<T>, c.outer, first_ * c.inner,
                     (shape_[dimension_] - first_) * c.inner, grads_out[0].data<T>(),
                     grads_out[1].data<T>(), grads_in[0].data<T>());
    });
  }

 private:
  Shape shape_;
  std::int64_t first_;
  int dimension_;
};

}  // namespace

Tensor concat(const Tensor& a, const Tensor& b, int dimension) {
  constexpr std::string_view op = "concat";
  if (is_bfloat16(a) || is_bfloat16(b)) {
    const Tensor wide_a = upcast(a);
    return concat(wide_a, upcast(b), dimension);
  }
  require(dimension >= 0 && dimension < a.shape().rank(), op, [&] {
    return "operands with a dimension " + std::to_string(dimension) + " expected, got " +
           to_string(a.shape());
  });
  require(b.shape().rank() == a.shape().rank() &&
              b.shape().with_extent(dimension, a.shape()[dimension]) == a.shape(),
          op, [&] {
            return "operands that agree outside dimension " + std::to_string(dimension) +
                   " expected, got " + to_string(a.shape()) + " and " + to_string(b.shape());
          });
  require_same_dtype(op, a, b);
  const Columns c = columns(a.shape(), dimension);
  Tensor y = compute_one({op, {&a, &b}, attributes(dimension)}, [&] {
    Tensor out = Tensor::empty(
        a.shape().with_extent(dimension, a.shape()[dimension] + b.shape()[dimension]), a.dtype());
    for_floating(a.dtype(), op, [&]<class T>() {
      REMATCH_KERNEL(a, concat2<T>, c.outer, a.shape()[dimension] * c.inner,
                     b.shape()[dimension] * c.inner, a.data<T>(), b.data<T>(), out.data<T>());
    });
    return out;
  });
  record<ConcatBackward>(y, {&a, &b}, a, b, dimension);
  return y;
}

std::array<Tensor, 2> split(const Tensor& x, std::int64_t first, int dimension) {
  constexpr std::string_view op = "split";
  if (is_bfloat16(x)) return split(upcast(x), first, dimension);
  const bool fits =
      dimension >= 0 && dimension < x.shape().rank() && first >= 1 && first < x.shape()[dimension];
  require(fits, op, [&] {
    return "1 <= first < extent of dimension " + std::to_string(dimension) + " expected, got " +
           std::to_string(first) + " and " + to_string(x.shape());
  });
  const Columns c = columns(x.shape(), dimension);
  const std::int64_t rest = x.shape()[dimension] - first;
  std::array<Tensor, 2> y = compute({op, {&x}, attributes(first, dimension)}, [&] {
    std::array<Tensor, 2> out{Tensor::empty(x.shape().with_extent(dimension, first), x.dtype()),
                              Tensor::empty(x.shape().with_extent(dimension, rest), x.dtype())};
    for_floating(x.dtype(), op, [&]<class T>() {
      REMATCH_KERNEL(x, split2<T>, c.outer, first * c.inner, rest * c.inner, x.data<T>(),
                     out[0].data<T>(), out[1].data<T>());
    });
    return out;
  });
  if (should_record({&x})) {
    auto node = std::make_shared<SplitBackward>(x, first, dimension);
    set_history(y[0], node, 0);
    set_history(y[1], node, 1);
  }
  return y;
}

}  // namespace rematch
