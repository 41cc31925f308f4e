#include "engine/ops/embedding.h"

#include <vector>

#include "engine/kernels/embedding.h"
#include "engine/ops/support.h"
#include "engine/tensor/kernel.h"

namespace rematch {
namespace {

class EmbeddingBackward final : public Node {
 public:
  EmbeddingBackward(const Tensor& tokens, const Tensor& weight) : Node(1), shape_(weight.shape()) {
    connect(*this, {&tokens, &weight});
    tokens_.save(tokens);
  }
  std::string_view name() const override { return "EmbeddingBackward"; }
  void release() noexcept override { tokens_.reset(); }
  void vjp(std::span<Tensor> grads_out, std::span<Tensor> grads_in) override {
    const Tensor tokens = tokens_.get(name());
    const Tensor& gy = grads_out[0];
    grads_in[1] = Tensor::empty(shape_, gy.dtype());
    for_floating(gy.dtype(), name(), [&]<class T>() {
      REMATCH_KERNEL(gy, sum_rows_of_tokens<T>, tokens.elements(), shape_[0], shape_[1],
                     tokens.data<std::int32_t>(), gy.data<T>(), grads_in[1].data<T>());
    });
  }

 private:
  Shape shape_;
  SavedTensor tokens_;
};

void check_tokens(std::string_view op, const Tensor& tokens, std::int64_t vocabulary) {
  const std::int64_t checked = tokens.device() == Device::cpu ? tokens.elements() : 0;
  for (std::int64_t i = 0; i < checked; ++i) {
    const std::int32_t t = tokens.data<std::int32_t>()[i];
    require(t >= 0 && t < vocabulary, op, [&] {
      return "token in [0, " + std::to_string(vocabulary) + ") expected at position " +
             std::to_string(i) + ", got " + std::to_string(t);
    });
  }
}

}  // namespace

Tensor embedding(const Tensor& tokens, const Tensor& weight) {
  constexpr std::string_view op = "embedding";
  if (is_bfloat16(weight)) return embedding(tokens, upcast(weight));
  require(tokens.dtype() == DType::int32, op,
          [&] { return "int32 tokens expected, got " + std::string(to_string(tokens.dtype())); });
  require_rank(op, "weight", weight, 2);
  require(tokens.device() == weight.device(), op,
          [] { return std::string("tokens on the device of the weight expected"); });
  check_tokens(op, tokens, weight.shape()[0]);
  const std::span<const std::int64_t> given = tokens.shape().dims();
  std::vector<std::int64_t> dims(given.begin(), given.end());
  dims.push_back(weight.shape()[1]);
  Tensor y = compute_one({op, {&tokens, &weight}}, [&] {
    Tensor out = Tensor::empty(Shape(std::span<const std::int64_t>(dims)), weight.dtype());
    for_floating(weight.dtype(), op, [&]<class T>() {
      REMATCH_KERNEL(weight, rows_of_tokens<T>, tokens.elements(), weight.shape()[0],
                     weight.shape()[1], tokens.data<std::int32_t>(), weight.data<T>(),
                     out.data<T>());
    });
    return out;
  });
  record<EmbeddingBackward>(y, {&tokens, &weight}, tokens, weight);
  return y;
}

}  // namespace rematch
