#include "engine/ops/activation.h"

#include "engine/kernels/activation.h"
#include "engine/ops/support.h"
#include "engine/tensor/kernel.h"

namespace rematch {
namespace {

enum class Kind : std::uint8_t { relu, gelu, silu, tanh, sigmoid, softmax, leaky_relu };

constexpr std::string_view kOps[] = {"relu",    "gelu",    "silu",      "tanh",
                                     "sigmoid", "softmax", "leaky_relu"};
constexpr std::string_view kNames[] = {"ReluBackward",     "GeluBackward",    "SiluBackward",
                                       "TanhBackward",     "SigmoidBackward", "SoftmaxBackward",
                                       "LeakyReluBackward"};

std::int64_t last_extent(const Shape& shape) {
  return shape.rank() == 0 ? 1 : shape[shape.rank() - 1];
}

/// One tensor in, one out, one saved: the input or the output, as the derivative prefers.
class ActivationBackward final : public Node {
 public:
  ActivationBackward(Kind kind, Edge operand, const Tensor& saved, double slope)
      : Node(1), kind_(kind), slope_(slope) {
    edges.push_back(std::move(operand));
    saved_.save(saved);
  }
  std::string_view name() const override { return kNames[static_cast<std::size_t>(kind_)]; }
  void release() noexcept override { saved_.reset(); }
  void vjp(std::span<Tensor> grads_out, std::span<Tensor> grads_in) override {
    const Tensor& gy = grads_out[0];
    const Tensor saved = saved_.get(name());
    grads_in[0] = Tensor::empty(gy.shape(), gy.dtype());
    const std::int64_t n = gy.elements();
    const std::int64_t cols = last_extent(gy.shape());
    for_floating(gy.dtype(), name(), [&]<class T>() {
      const T* g = gy.data<T>();
      const T* s = saved.data<T>();
      T* gx = grads_in[0].data<T>();
      switch (kind_) {
#define REMATCH_CASE(f) \
  case Kind::f:         \
    return REMATCH_KERNEL(gy, f##_backward<T>, n, g, s, gx);
        REMATCH_POINTWISE_ACTIVATIONS(REMATCH_CASE)
#undef REMATCH_CASE
        case Kind::softmax:
          return REMATCH_KERNEL(gy, softmax_backward<T>, cols == 0 ? 0 : n / cols, cols, g, s, gx);
        case Kind::leaky_relu:
          return REMATCH_KERNEL(gy, leaky_relu_backward<T>, n, g, s, static_cast<T>(slope_), gx);
      }
    });
  }

 private:
  Kind kind_;
  double slope_;
  SavedTensor saved_;
};

constexpr bool saves_input(Kind kind) {
  return kind == Kind::gelu || kind == Kind::silu || kind == Kind::leaky_relu;
}

Tensor activated(Kind kind, const Tensor& x, double slope) {
  Tensor y = Tensor::empty(x.shape(), x.dtype());
  const std::int64_t n = x.elements();
  const std::int64_t cols = last_extent(x.shape());
  for_floating(x.dtype(), kOps[static_cast<std::size_t>(kind)], [&]<class T>() {
    const T* in = x.data<T>();
    T* out = y.data<T>();
    switch (kind) {
#define REMATCH_CASE(f) \
  case Kind::f:         \
    return REMATCH_KERNEL(x, f##_forward<T>, n, in, out);
      REMATCH_POINTWISE_ACTIVATIONS(REMATCH_CASE)
#undef REMATCH_CASE
      case Kind::softmax:
        return REMATCH_KERNEL(x, softmax_forward<T>, cols == 0 ? 0 : n / cols, cols, in, out);
      case Kind::leaky_relu:
        return REMATCH_KERNEL(x, leaky_relu_forward<T>, n, in, static_cast<T>(slope), out);
    }
  });
  return y;
}

Tensor activate(Kind kind, const Tensor& x, double slope = 0) {
  if (is_bfloat16(x)) return activate(kind, upcast(x), slope);
  const OpCall call{kOps[static_cast<std::size_t>(kind)], {&x}, attributes(slope)};
  Tensor y = compute_one(call, [&] { return activated(kind, x, slope); });
  if (should_record({&x})) {
    set_history(y, std::make_shared<ActivationBackward>(kind, gradient_edge(x),
                                                        saves_input(kind) ? x : y, slope));
  }
  return y;
}

}  // namespace

Tensor relu(const Tensor& x) { return activate(Kind::relu, x); }
Tensor gelu(const Tensor& x) { return activate(Kind::gelu, x); }
Tensor silu(const Tensor& x) { return activate(Kind::silu, x); }
Tensor tanh(const Tensor& x) { return activate(Kind::tanh, x); }
Tensor sigmoid(const Tensor& x) { return activate(Kind::sigmoid, x); }
Tensor softmax(const Tensor& x) { return activate(Kind::softmax, x); }
Tensor leaky_relu(const Tensor& x, double slope) { return activate(Kind::leaky_relu, x, slope); }

Tensor relu_(Tensor& x) {
  check_in_place(x, "relu_");
  announce({"relu_", {&x}, 0, false});
  const bool recorded = should_record({&x});
  Edge operand = recorded ? gradient_edge(x) : Edge{};
  for_floating(x.dtype(), "relu_", [&]<class T>() {
    REMATCH_KERNEL(x, relu_forward<T>, x.elements(), x.data<T>(), x.data<T>());
  });
  mark_written(x);
  if (recorded) {
    set_history_in_place(
        x, std::make_shared<ActivationBackward>(Kind::relu, std::move(operand), x, 0.0));
  }
  return x;
}

}  // namespace rematch
