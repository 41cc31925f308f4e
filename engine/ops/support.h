#pragma once

#include <array>
#include <concepts>
#include <initializer_list>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "engine/ambient/ambient.h"
#include "engine/ambient/op_watcher.h"
#include "engine/autograd/node.h"
#include "engine/autograd/saved_tensor.h"
#include "engine/ops/cast.h"
#include "engine/tensor/dispatch.h"
#include "engine/tensor/tensor.h"

namespace rematch {

// Every op needs this: argument checks that say what was expected and what came, and the one line
// that records a node.

/// Null for a tensor that is not there.
template <typename T, class MaybeConst>
auto* data_of(MaybeConst& t) {
  return t.defined() ? t.template data<T>() : nullptr;
}

/// Adds one edge per operand; undefined operands get an empty edge.
inline void connect(Node& node, std::initializer_list<const Tensor*> operands) {
  node.edges.reserve(operands.size());
  for (const Tensor* t : operands) node.edges.push_back(t->defined() ? gradient_edge(*t) : Edge{});
}

/// Makes `output` the result of a new Backward(args...), if anything is to be recorded. The node
/// saves tensors in its constructor, so call this after the kernel.
template <class Backward, class... Args>
void record(Tensor& output, std::initializer_list<const Tensor*> operands, Args&&... args) {
  if (!should_record(operands)) return;
  set_history(output, std::make_shared<Backward>(std::forward<Args>(args)...));
}

/// The node of an op with one operand and one result, whose gradient is gradient(gy, saved
/// tensors).
template <class Gradient, std::size_t kSaved>
class UnaryBackward final : public Node {
 public:
  UnaryBackward(std::string_view name, const Tensor& x, Gradient gradient,
                const std::array<const Tensor*, kSaved>& saved)
      : Node(1), name_(name), gradient_(std::move(gradient)) {
    connect(*this, {&x});
    for (std::size_t i = 0; i < kSaved; ++i) saved_[i].save(*saved[i]);
  }
  std::string_view name() const override { return name_; }
  void release() noexcept override {
    for (SavedTensor& t : saved_) t.reset();
  }
  void vjp(std::span<Tensor> grads_out, std::span<Tensor> grads_in) override {
    std::array<Tensor, kSaved> values;
    for (std::size_t i = 0; i < kSaved; ++i) values[i] = saved_[i].get(name_);
    grads_in[0] =
        std::apply([&](const auto&... v) { return gradient_(grads_out[0], v...); }, values);
  }

 private:
  std::string_view name_;
  Gradient gradient_;
  std::array<SavedTensor, kSaved> saved_;
};

/// Makes `y` the result of such a node, if anything is to be recorded.
template <class Gradient, std::same_as<Tensor>... Saved>
void record_unary(Tensor& y, std::string_view name, const Tensor& x, Gradient gradient,
                  const Saved&... saved) {
  record<UnaryBackward<Gradient, sizeof...(Saved)>>(
      y, {&x}, name, x, std::move(gradient),
      std::array<const Tensor*, sizeof...(Saved)>{&saved...});
}

/// The tensors that an op makes: computed by `body`, which returns an array of them, or recalled by
/// the ambient watcher.
template <std::invocable Body>
auto compute(const OpCall& call, Body&& body) {
  const Ambient& state = ambient();
  const auto run = [&] {
    if (state.observer != nullptr) state.observer->on_compute(call.op);
    return body();
  };
  OpWatcher* watcher = state.ops;
  decltype(body()) results;
  if (watcher == nullptr) {
    results = run();
  } else {
    if (!watcher->recall(call, results)) {
      try {
        results = run();
      } catch (...) {
        watcher->failed(call);
        throw;
      }
    }
    watcher->done(call, results);
  }
  if (state.observer != nullptr) state.observer->on_results(call.op, results);
  return results;
}

/// The same for an op that makes one tensor, which `body` returns.
template <std::invocable Body>
Tensor compute_one(const OpCall& call, Body&& body) {
  return std::move(compute(call, [&] { return std::array<Tensor, 1>{body()}; })[0]);
}

/// Announces an op that makes no new tensors. Call it before the op does anything.
inline void announce(const OpCall& call) {
  if (OpWatcher* watcher = ambient().ops) {
    watcher->recall(call, {});
    watcher->done(call, {});
  }
}

template <std::invocable Message>
void require(bool condition, std::string_view op, Message&& message) {
  if (!condition) throw std::invalid_argument("[" + std::string(op) + "] " + message());
}

inline void require_rank(std::string_view op, std::string_view what, const Tensor& t, int rank) {
  require(t.shape().rank() == rank, op, [&] {
    return std::string(what) + " of rank " + std::to_string(rank) + " expected, got " +
           to_string(t.shape());
  });
}

inline void require_shape(std::string_view op, std::string_view what, const Tensor& t,
                          const Shape& shape) {
  require(t.shape() == shape, op, [&] {
    return std::string(what) + " of shape " + to_string(shape) + " expected, got " +
           to_string(t.shape());
  });
}

/// Kernels know no bfloat16. An op other than linear and conv2d that is given some begins again
/// with its operands upcast: what it announces, saves and returns is then float32.
inline bool is_bfloat16(const Tensor& t) { return t.defined() && t.dtype() == DType::bfloat16; }
inline Tensor upcast(const Tensor& t) { return is_bfloat16(t) ? cast(t, DType::float32) : t; }

/// For ops that do something before their kernel is chosen, such as a draw.
inline void require_floating(std::string_view op, const Tensor& t) {
  require(is_floating(t.dtype()), op, [&] {
    return "float32, float64 or bfloat16 expected, got " + std::string(to_string(t.dtype()));
  });
}

/// Operands that a kernel reads side by side: of one dtype, on one device.
inline void require_same_dtype(std::string_view op, const Tensor& a, const Tensor& b) {
  require(a.device() == b.device(), op, [&] {
    return "operands on one device expected, got " + std::string(to_string(a.device())) + " and " +
           std::string(to_string(b.device()));
  });
  require(a.dtype() == b.dtype(), op, [&] {
    return "operands of one dtype expected, got " + std::string(to_string(a.dtype())) + " and " +
           std::string(to_string(b.dtype()));
  });
}

}  // namespace rematch
