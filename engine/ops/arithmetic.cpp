#include "engine/ops/arithmetic.h"

#include "engine/kernels/elementwise.h"
#include "engine/kernels/random.h"
#include "engine/ops/support.h"
#include "engine/tensor/accumulate.h"
#include "engine/tensor/kernel.h"

namespace rematch {
namespace {

class AddBackward final : public Node {
 public:
  AddBackward(Edge a, Edge b) : Node(1) {
    edges.push_back(std::move(a));
    edges.push_back(std::move(b));
  }
  std::string_view name() const override { return "AddBackward"; }
  void vjp(std::span<Tensor> grads_out, std::span<Tensor> grads_in) override {
    if (needs(0)) grads_in[0] = grads_out[0];
    if (needs(1)) grads_in[1] = grads_out[0];
  }
};

class MulBackward final : public Node {
 public:
  MulBackward(const Tensor& a, const Tensor& b) : Node(1) {
    connect(*this, {&a, &b});
    if (needs(1)) a_.save(a);
    if (needs(0)) b_.save(b);
  }
  std::string_view name() const override { return "MulBackward"; }
  void release() noexcept override {
    a_.reset();
    b_.reset();
  }
  void vjp(std::span<Tensor> grads_out, std::span<Tensor> grads_in) override {
    const Tensor a = needs(1) ? a_.get(name()) : Tensor();
    const Tensor b = needs(0) ? b_.get(name()) : Tensor();
    if (needs(0)) grads_in[0] = product(grads_out[0], b);
    if (needs(1)) grads_in[1] = product(grads_out[0], a);
  }
  static Tensor product(const Tensor& a, const Tensor& b) {
    Tensor y = Tensor::empty(a.shape(), a.dtype());
    for_floating(a.dtype(), "mul", [&]<class T>() {
      REMATCH_KERNEL(a, multiply<T>, a.elements(), a.data<T>(), b.data<T>(), y.data<T>());
    });
    return y;
  }

 private:
  SavedTensor a_;
  SavedTensor b_;
};

Tensor scaled(const Tensor& x, double factor) {
  Tensor y = Tensor::empty(x.shape(), x.dtype());
  for_floating(x.dtype(), "scale", [&]<class T>() {
    REMATCH_KERNEL(x, scale<T>, x.elements(), x.data<T>(), static_cast<T>(factor), y.data<T>());
  });
  return y;
}

class ScaleBackward final : public Node {
 public:
  ScaleBackward(Edge operand, double factor) : Node(1), factor_(factor) {
    edges.push_back(std::move(operand));
  }
  std::string_view name() const override { return "ScaleBackward"; }
  void vjp(std::span<Tensor> grads_out, std::span<Tensor> grads_in) override {
    grads_in[0] = scaled(grads_out[0], factor_);
  }

 private:
  double factor_;
};

void require_alike(std::string_view op, const Tensor& a, const Tensor& b) {
  require_shape(op, "second operand", b, a.shape());
  require_same_dtype(op, a, b);
}

}  // namespace

Tensor add(const Tensor& a, const Tensor& b) {
  if (is_bfloat16(a) || is_bfloat16(b)) {
    const Tensor wide_a = upcast(a);
    return add(wide_a, upcast(b));
  }
  require_alike("add", a, b);
  Tensor y = compute_one({"add", {&a, &b}}, [&] { return sum_of(a, b); });
  if (should_record({&a, &b})) {
    set_history(y, std::make_shared<AddBackward>(gradient_edge(a), gradient_edge(b)));
  }
  return y;
}

Tensor mul(const Tensor& a, const Tensor& b) {
  if (is_bfloat16(a) || is_bfloat16(b)) {
    const Tensor wide_a = upcast(a);
    return mul(wide_a, upcast(b));
  }
  require_alike("mul", a, b);
  Tensor y = compute_one({"mul", {&a, &b}}, [&] { return MulBackward::product(a, b); });
  record<MulBackward>(y, {&a, &b}, a, b);
  return y;
}

Tensor scale(const Tensor& x, double factor) {
  if (is_bfloat16(x)) return scale(upcast(x), factor);
  Tensor y = compute_one({"scale", {&x}, attributes(factor)}, [&] { return scaled(x, factor); });
  if (should_record({&x})) {
    set_history(y, std::make_shared<ScaleBackward>(gradient_edge(x), factor));
  }
  return y;
}

Tensor hooked(const Tensor& x, double factor) {
  if (is_bfloat16(x)) return hooked(upcast(x), factor);
  Tensor y = compute_one({"hooked", {&x}, attributes(factor)}, [&] { return scaled(x, 1); });
  record_unary(y, "HookedBackward", x, [](const Tensor& gy) { return gy; });
  if (y.requires_grad()) {
    y.register_hook([factor](const Tensor& gradient) { return scaled(gradient, factor); });
  }
  return y;
}

Tensor sum(const Tensor& x) {
  if (is_bfloat16(x)) return sum(upcast(x));
  Tensor y = compute_one({"sum", {&x}}, [&] {
    Tensor out = Tensor::empty({}, x.dtype());
    for_floating(x.dtype(), "sum", [&]<class T>() {
      REMATCH_KERNEL(x, sum<T>, x.elements(), x.data<T>(), out.data<T>());
    });
    return out;
  });
  record_unary(y, "SumBackward", x, [shape = x.shape()](const Tensor& gy) {
    Tensor gx = Tensor::empty(shape, gy.dtype());
    for_floating(gy.dtype(), "SumBackward", [&]<class T>() {
      REMATCH_KERNEL(gy, fill_from<T>, gx.elements(), gy.data<T>(), gx.data<T>());
    });
    return gx;
  });
  return y;
}

Tensor add_(Tensor& x, const Tensor& y) {
  check_in_place(x, "add_");
  if (is_bfloat16(y)) return add_(x, upcast(y));
  require_alike("add_", x, y);
  announce({"add_", {&x, &y}, 0, false});
  const bool recorded = should_record({&x, &y});
  Edge a = recorded ? gradient_edge(x) : Edge{};
  Edge b = recorded ? gradient_edge(y) : Edge{};
  for_floating(x.dtype(), "add_", [&]<class T>() {
    REMATCH_KERNEL(x, add<T>, x.elements(), x.data<T>(), y.data<T>(), x.data<T>());
  });
  mark_written(x);
  if (recorded) {
    set_history_in_place(x, std::make_shared<AddBackward>(std::move(a), std::move(b)));
  }
  return x;
}

Tensor scale_(Tensor& x, double factor) {
  check_in_place(x, "scale_");
  announce({"scale_", {&x}, attributes(factor), false});
  const bool recorded = should_record({&x});
  Edge operand = recorded ? gradient_edge(x) : Edge{};
  for_floating(x.dtype(), "scale_", [&]<class T>() {
    REMATCH_KERNEL(x, scale_inplace<T>, x.elements(), static_cast<T>(factor), x.data<T>());
  });
  mark_written(x);
  if (recorded)
    set_history_in_place(x, std::make_shared<ScaleBackward>(std::move(operand), factor));
  return x;
}

}  // namespace rematch
