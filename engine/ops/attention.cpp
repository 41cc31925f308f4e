#include "engine/ops/attention.h"

#include <vector>

#include "engine/kernels/attention.h"
#include "engine/kernels/random.h"
#include "engine/ops/draw.h"
#include "engine/ops/support.h"
#include "engine/tensor/kernel.h"

namespace rematch {
namespace {

constexpr std::string_view kAttention = "attention";
using math::AttentionShape;
using math::AttentionState;

/// Kept for the backward beside the operands: probabilities and a mask, or log-sum-exps; those
/// that are not there are undefined.
struct Kept {
  Tensor probabilities;
  Tensor mask;
  Tensor logs;

  template <typename T>
  AttentionState<T> state() {
    return {probabilities.defined() ? probabilities.data<T>() : nullptr,
            mask.defined() ? mask.data<std::uint8_t>() : nullptr,
            logs.defined() ? logs.data<T>() : nullptr};
  }
};

class AttentionBackward final : public Node {
 public:
  AttentionBackward(const AttentionShape& shape, const AttentionDropout& dropout, const Tensor& q,
                    const Tensor& memory, const Tensor& y, const Kept& kept)
      : Node(1),
        shape_(shape),
        dropout_(dropout),
        q_shape_(q.shape()),
        memory_shape_(memory.shape()),
        fused_(kept.logs.defined()),
        masked_(kept.mask.defined()) {
    connect(*this, {&q, &memory});
    q_.save(q);
    memory_.save(memory);
    if (fused_) {
      y_.save(y);
      logs_.save(kept.logs);
    } else {
      probabilities_.save(kept.probabilities);
      if (masked_) mask_.save(kept.mask);
    }
  }
  std::string_view name() const override { return "AttentionBackward"; }
  void release() noexcept override {
    for (SavedTensor* t : {&q_, &memory_, &y_, &logs_, &probabilities_, &mask_}) t->reset();
  }
  void vjp(std::span<Tensor> grads_out, std::span<Tensor> grads_in) override {
    const Tensor& gy = grads_out[0];
    const Tensor q = q_.get(name());
    const Tensor memory = memory_.get(name());
    const Tensor y = fused_ ? y_.get(name()) : Tensor();
    Kept kept;
    if (fused_) {
      kept.logs = logs_.get(name());
    } else {
      kept.probabilities = probabilities_.get(name());
      if (masked_) kept.mask = mask_.get(name());
    }
    if (needs(0)) grads_in[0] = Tensor::empty(q_shape_, gy.dtype());
    if (needs(1)) grads_in[1] = Tensor::empty(memory_shape_, gy.dtype());
    for_floating(gy.dtype(), name(), [&]<class T>() {
      REMATCH_KERNEL(gy, attention_backward<T>, shape_, gy.data<T>(), q.data<T>(), memory.data<T>(),
                     fused_ ? y.data<T>() : nullptr, dropout_, kept.state<T>(),
                     needs(0) ? grads_in[0].data<T>() : nullptr,
                     needs(1) ? grads_in[1].data<T>() : nullptr);
    });
  }

 private:
  AttentionShape shape_;
  AttentionDropout dropout_;
  Shape q_shape_;
  Shape memory_shape_;
  bool fused_;
  bool masked_;
  SavedTensor q_;
  SavedTensor memory_;
  SavedTensor y_;
  SavedTensor logs_;
  SavedTensor probabilities_;
  SavedTensor mask_;
};

AttentionShape shape_of(const Tensor& q, const Tensor& memory, const AttentionOptions& options) {
  require_rank(kAttention, "queries", q, 3);
  require_rank(kAttention, "memory", memory, 3);
  const Shape& x = q.shape();
  const Shape& m = memory.shape();
  require(options.heads >= 1 && x.elements() > 0 && x[2] % options.heads == 0, kAttention, [&] {
    return "queries with features for " + std::to_string(options.heads) + " heads expected, got " +
           to_string(x);
  });
  AttentionShape s{.batch = x[0],
                   .queries = x[1],
                   .keys = m[1],
                   .heads = options.heads,
                   .size = x[2] / options.heads,
                   .causal = options.causal};
  s.memory_heads = m[2] / (2 * s.size);
  require(
      m[0] == x[0] && m.elements() > 0 && s.memory_width() == m[2] && s.heads % s.memory_heads == 0,
      kAttention, [&] {
        return "a memory of batch " + std::to_string(x[0]) + " with keys and values of " +
               std::to_string(s.size) + " features for a divisor of " + std::to_string(s.heads) +
               " heads expected, got " + to_string(m);
      });
  require(!s.causal || s.keys >= s.queries, kAttention, [&] {
    return "at least as many keys as queries expected where attention is causal, got " +
           std::to_string(s.keys) + " and " + std::to_string(s.queries);
  });
  require_same_dtype(kAttention, q, memory);
  return s;
}

/// A fused kernel does not keep the mask that it draws, so it is drawn once more for an observer.
void report_draw_of(const AttentionShape& s, const AttentionDropout& d) {
  RunObserver* observer = ambient().observer;
  if (observer == nullptr) return;
  const auto n = static_cast<std::size_t>(s.scores());
  std::vector<std::uint8_t> mask(n);
  const std::vector<float> ones(n, 1.0F);
  std::vector<float> unused(n);
  cpu::dropout_forward<float>(s.scores(), ones.data(), d.p, d.generator.seed, d.generator.stream,
                              d.generator.offset, mask.data(), unused.data());
  observer->on_draw(d.generator, s.scores(), std::as_bytes(std::span(mask)));
}

}  // namespace

Tensor attention(const Tensor& q, const Tensor& memory, const AttentionOptions& options) {
  if (is_bfloat16(q) || is_bfloat16(memory)) {
    const Tensor wide_q = upcast(q);
    return attention(wide_q, upcast(memory), options);
  }
  require(options.p >= 0 && options.p < 1, kAttention,
          [&] { return "probability in [0, 1) expected, got " + std::to_string(options.p); });
  require_floating(kAttention, q);
  const AttentionShape s = shape_of(q, memory, options);
  const bool draws = options.random.train && options.p > 0;
  const int stream = options.random.stream;
  AttentionDropout dropout{draws ? options.p : 0, ambient().streams.at(stream)};
  const OpCall call{kAttention,
                    {&q, &memory},
                    attributes(options.heads, options.causal, options.fused, dropout.p, stream)};
  const Shape rows{s.batch, s.heads, s.queries};
  const Shape scores{s.batch, s.heads, s.queries, s.keys};
  const auto run = [&](Tensor& y, Kept kept) {
    for_floating(q.dtype(), kAttention, [&]<class T>() {
      REMATCH_KERNEL(q, attention_forward<T>, s, q.data<T>(), memory.data<T>(), dropout,
                     kept.state<T>(), y.data<T>());
    });
    if (!draws) return;
    if (kept.mask.defined()) {
      report_draw(dropout.generator, kept.mask);
    } else {
      report_draw_of(s, dropout);
    }
  };
  const auto computed = [&](auto&& body) {
    if (!draws) return compute(call, body);
    return compute_draw(call, s.scores(), stream, [&](const Generator&) { return body(); });
  };
  Tensor y;
  Kept kept;
  if (!options.fused && draws) {
    std::array<Tensor, 3> out = computed([&] {
      std::array<Tensor, 3> made{Tensor::empty(q.shape(), q.dtype()),
                                 Tensor::empty(scores, q.dtype()),
                                 Tensor::empty(scores, DType::uint8)};
      run(made[0], {made[1], made[2], {}});
      return made;
    });
    y = out[0];
    kept = {out[1], out[2], {}};
  } else {
    std::array<Tensor, 2> out = computed([&] {
      std::array<Tensor, 2> made{Tensor::empty(q.shape(), q.dtype()),
                                 Tensor::empty(options.fused ? rows : scores, q.dtype())};
      run(made[0], options.fused ? Kept{{}, {}, made[1]} : Kept{made[1], {}, {}});
      return made;
    });
    y = out[0];
    kept = options.fused ? Kept{{}, {}, out[1]} : Kept{out[1], {}, {}};
  }
  record<AttentionBackward>(y, {&q, &memory}, s, dropout, q, memory, y, kept);
  return y;
}

}  // namespace rematch
