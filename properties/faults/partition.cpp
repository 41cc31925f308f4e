#include <algorithm>
#include <array>
#include <list>
#include <map>
#include <unordered_map>

#include "engine/autograd/backward.h"
#include "properties/faults/families.h"
#include "properties/faults/support.h"

namespace rematch {
namespace faulty {
namespace {

/// P1
struct FedWithItsPredecessorsInput {
  Tensors operator()(const Function& f, const Tensors& in, const CheckpointOptions& options) {
    Tensors fed = in;
    const std::shared_ptr<TensorImpl> before = previous_input.lock();
    if (!in.empty() && storage_of(in[0]) == previous_output && before) {
      const Tensor t(before);
      if (t.shape() == in[0].shape() && t.dtype() == in[0].dtype()) fed[0] = t;
    }
    Tensors out = checkpoint(f, fed, options);
    previous_input.reset();
    previous_output = 0;
    if (in.empty() || out.empty()) return out;
    previous_input = fed[0].shared_impl();
    previous_output = storage_of(out[0]);
    return out;
  }

  std::weak_ptr<TensorImpl> previous_input;
  std::uint64_t previous_output = 0;
};

/// P2
class LastLayerLost final : public Mechanics {
 public:
  std::vector<Segment> partition(int layers, int segments, LastSegment last) const override {
    std::vector<Segment> cut = Mechanics::partition(layers, segments, last);
    --cut.back().end;
    return cut;
  }
};

/// P3
class LastOneToo final : public Mechanics {
 public:
  std::vector<Segment> partition(int layers, int segments, LastSegment /*last*/) const override {
    return Mechanics::partition(layers, segments, LastSegment::checkpointed);
  }
};

/// P3b
struct NothingIsCheckpointed {
  Tensors operator()(const Function& f, const Tensors& in,
                     const CheckpointOptions& /*options*/) const {
    return f(in);
  }
};

/// P4: takes the operand of the first op for its result, where shapes allow it.
class FirstOpSkipped final : public Spy {
 public:
  bool recall(const OpCall& call, std::span<Tensor> results) override {
    if (Spy::recall(call, results)) return true;
    const bool elementwise = call.op == "tanh" || call.op == "sigmoid" || call.op == "relu" ||
                             call.op == "gelu" || call.op == "softmax";
    if (skipped_ || results.size() != 1 || !elementwise) return false;
    skipped_ = true;
    results[0] = (*call.operands.begin())->detach();
    return true;
  }

 private:
  bool skipped_ = false;
};

/// P5
struct CounterNotReset {
  Tensors operator()(const Function& f, const Tensors& in, CheckpointOptions options) {
    if (options.policy) {
      options.policy = [this, policy = options.policy](const OpInstance& instance) {
        return policy({instance.op, counts[std::string(instance.op)]++});
      };
    }
    return checkpoint(f, in, options);
  }

  std::map<std::string, int> counts;
};

/// P6: the first saved tensor that a backward asks for has all segments recomputed, from the first
/// one on.
class ForwardOrder {
 public:
  Tensors operator()(const Function& f, const Tensors& in, const CheckpointOptions& options) {
    if (options.reentrant || ambient().backward_id != 0) return checkpoint(f, in, options);
    return checkpoint(around(
                          f,
                          [this](const Function& g, const Tensors& x) {
                            const Collector hooks(*waiting_);
                            return g(x);
                          },
                          run_function),
                      in, options);
  }

 private:
  class Ticket;
  struct Waiting : std::enable_shared_from_this<Waiting> {
    std::list<Ticket*> tickets;
    std::uint64_t backward = 0;
  };

  /// Stands in for the first placeholder of each segment.
  class Ticket final : public PackedTensor {
   public:
    Ticket(std::unique_ptr<PackedTensor> inner, std::shared_ptr<Waiting> waiting)
        : inner_(std::move(inner)), waiting_(std::move(waiting)) {
      waiting_->tickets.push_back(this);
    }
    ~Ticket() override { waiting_->tickets.remove(this); }
    Tensor unpack() override {
      if (current_backward() != waiting_->backward) {
        waiting_->backward = current_backward();
        for (Ticket* ticket : std::list<Ticket*>(waiting_->tickets)) ticket->fetch();
      }
      if (fetched_.defined()) return std::exchange(fetched_, Tensor());
      return inner_->unpack();
    }

   private:
    void fetch() {
      if (!fetched_.defined()) fetched_ = inner_->unpack();
    }
    std::unique_ptr<PackedTensor> inner_;
    std::shared_ptr<Waiting> waiting_;
    Tensor fetched_;
  };

  class Collector final : public SaveSpy {
   public:
    explicit Collector(Waiting& waiting) : waiting_(waiting) {}
    std::unique_ptr<PackedTensor> pack(const Tensor& t) override {
      std::unique_ptr<PackedTensor> inner = SaveSpy::pack(t);
      if (!inner || !std::exchange(first_, false)) return inner;
      return std::make_unique<Ticket>(std::move(inner), waiting_.shared_from_this());
    }

   private:
    Waiting& waiting_;
    bool first_ = true;
  };

  std::shared_ptr<Waiting> waiting_ = std::make_shared<Waiting>();
};

/// P7: what no op of the previous segment needs is taken for dead.
struct LongSkipFreed {
  Tensors operator()(const Function& f, const Tensors& in, const CheckpointOptions& options) {
    if (ambient().backward_id != 0) return checkpoint(f, in, options);
    ++calls;
    std::vector<std::size_t> dead;
    for (std::size_t i = 0; i < in.size(); ++i) {
      const int first = first_seen.try_emplace(storage_of(in[i]), calls).first->second;
      if (calls - first >= 2) dead.push_back(i);
    }
    if (dead.empty()) return checkpoint(f, in, options);
    return checkpoint(around(f, run_function,
                             [dead](const Function& g, const Tensors& x) {
                               for (const std::size_t i : dead) fill_bytes(x[i], std::byte{0xff});
                               return g(x);
                             }),
                      in, options);
  }

  int calls = 0;
  std::unordered_map<std::uint64_t, int> first_seen;
};

/// P8: results of recomputations, by op and shape, for the rest of the backward.
struct SharedCache {
  Tensors operator()(const Function& f, const Tensors& in, const CheckpointOptions& options) {
    return checkpoint(around(f, run_function,
                             [this](const Function& g, const Tensors& x) {
                               const Remember spy(*this);
                               return g(x);
                             }),
                      in, options);
  }

  class Remember final : public Spy {
   public:
    explicit Remember(SharedCache& cache) : cache_(cache) {
      if (cache_.backward == current_backward()) return;
      cache_.backward = current_backward();
      cache_.made.clear();
      at_end_of_backward([&cache] { cache.made.clear(); });
    }
    bool recall(const OpCall& call, std::span<Tensor> results) override {
      if (Spy::recall(call, results)) return true;
      const auto found = cache_.made.find(key(call));
      if (!call.makes_tensors || found == cache_.made.end()) return false;
      for (std::size_t i = 0; i < results.size(); ++i) results[i] = found->second[i].detach();
      return true;
    }
    void done(const OpCall& call, std::span<const Tensor> results) override {
      Spy::done(call, results);
      if (!call.makes_tensors) return;
      Tensors& kept = cache_.made[key(call)];
      if (!kept.empty()) return;
      for (const Tensor& t : results) kept.push_back(t.detach());
    }

   private:
    static std::string key(const OpCall& call) {
      std::string text(call.op);
      for (const Tensor* t : call.operands) {
        if (t->defined()) text += to_string(t->shape()) + std::string(to_string(t->dtype()));
      }
      return text + std::to_string(call.attributes);
    }
    SharedCache& cache_;
  };

  std::uint64_t backward = 0;
  std::map<std::string, Tensors> made;
};

/// P9
class RemainderFirst final : public Mechanics {
 public:
  std::vector<Segment> partition(int layers, int segments, LastSegment last) const override {
    std::vector<Segment> cut = Mechanics::partition(layers, segments, last);
    const int surplus = layers % segments;
    for (std::size_t i = 0; i < cut.size(); ++i) {
      if (i > 0) cut[i].begin += surplus;
      if (i + 1 < cut.size()) cut[i].end += surplus;
    }
    return cut;
  }
};

/// P10
struct WholePrefix {
  struct Chain {
    Tensors inputs;
    std::vector<Function> functions;
  };

  Tensors operator()(const Function& f, const Tensors& in, const CheckpointOptions& options) {
    std::shared_ptr<const Chain> before = last.lock();
    if (in.empty() || storage_of(in[0]) != last_output) before = nullptr;
    auto chain = std::make_shared<Chain>(before ? *before : Chain{in, {}});
    chain->functions.push_back(f);
    Tensors out = checkpoint(around(
                                 f, [chain](const Function& g, const Tensors& x) { return g(x); },
                                 [before](const Function& g, const Tensors& x) {
                                   if (before) run(*before);
                                   return g(x);
                                 }),
                             in, options);
    last = chain;
    last_output = out.empty() ? 0 : storage_of(out[0]);
    return out;
  }

  static void run(const Chain& chain) {
    const GradMode no_grad(false);
    const HookScope no_hooks(nullptr);
    const Streams streams = ambient().streams;
    OpWatcher* const watcher = std::exchange(ambient().ops, nullptr);
    Tensors values = chain.inputs;
    for (const Function& f : chain.functions) values = f(values);
    ambient().ops = watcher;
    ambient().streams = streams;
  }

  std::weak_ptr<const Chain> last;
  std::uint64_t last_output = 0;
};

}  // namespace

}  // namespace faulty

std::span<const Fault> partition_faults() {
  using namespace faulty;
  static const std::array table{
      Fault{"P1", "A segment is given the input of the one before it.", "NVIDIA/Megatron-LM#290",
            with_checkpoint<FedWithItsPredecessorsInput>},
      Fault{"P2", "The last layer of the last segment is skipped.", "NVIDIA/Megatron-LM#2294",
            with_mechanics<LastLayerLost>},
      Fault{"P3", "The last segment is checkpointed as well.", "", with_mechanics<LastOneToo>},
      Fault{"P3b", "Nothing is checkpointed.", "lucidrains/En-transformer#4",
            with_checkpoint<NothingIsCheckpointed>},
      Fault{"P4", "A recomputation starts one op late.", "state-spaces/mamba#939",
            with_runs<under<FirstOpSkipped>>},
      Fault{"P5", "The op counter of a policy is not reset between segments.",
            "pytorch/torchtitan#3397", with_checkpoint<CounterNotReset>},
      Fault{"P6", "Segments are recomputed first to last.", "", with_checkpoint<ForwardOrder>},
      Fault{"P7", "A value that skips two segments has been freed when the third is recomputed.",
            "dolfin-adjoint/pyadjoint#209", with_checkpoint<LongSkipFreed>},
      Fault{"P8", "Recomputations share results that have the same op and shape.",
            "jax-ml/jax#8228 jax-ml/jax#8191", with_checkpoint<SharedCache>},
      Fault{"P9", "The remainder of the layers goes to the first segment.", "",
            with_mechanics<RemainderFirst>},
      Fault{"P10", "A recomputation always starts at the first segment, whichever one is needed.",
            "", with_checkpoint<WholePrefix>},
  };
  return table;
}

}  // namespace rematch
