#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "engine/autograd/backward.h"
#include "properties/faults/families.h"
#include "properties/faults/support.h"

namespace rematch {
namespace faulty {
namespace {

/// L1
class NothingFreed final : public Mechanics {
 public:
  void release(Tensor& /*recomputed*/) const override {}
};

/// L2, L7: hooks around do not see what the segment keeps. `Nested`: those of a segment around it.
template <bool Nested>
struct InputsPastTheHooks {
  Tensors operator()(const Function& f, const Tensors& in, const CheckpointOptions& options) {
    const auto deeper = [this](const Function& g, const Tensors& x) {
      struct Depth {
        int& depth;
        explicit Depth(int& d) : depth(d) { ++depth; }
        ~Depth() { --depth; }
      } inside(depth);
      return g(x);
    };
    const Function counted = around(f, deeper, deeper);
    if ((depth > 0) != Nested) return checkpoint(counted, in, options);
    const HookScope none(nullptr);
    return checkpoint(counted, in, options);
  }

  int depth = 0;
};

/// L3: what the function keeps of its own outputs keeps the graph that keeps the function.
struct Cycle {
  Tensors operator()(const Function& f, const Tensors& in, const CheckpointOptions& options) {
    auto kept = std::make_shared<Tensors>();
    const auto run = [kept](const Function& g, const Tensors& x) { return g(x); };
    Tensors out = checkpoint(around(f, run, run), in, options);
    *kept = out;
    all.push_back(kept);
    return out;
  }
  /// A run leaks; the program that proves it does not.
  ~Cycle() {
    for (const std::weak_ptr<Tensors>& weak : all) {
      if (const auto kept = weak.lock()) const Tensors released = std::exchange(*kept, {});
    }
  }

  std::vector<std::weak_ptr<Tensors>> all;
};

/// L3b
struct KeepsWhatFailed {
  Tensors operator()(const Function& f, const Tensors& in, const CheckpointOptions& options) {
    try {
      return checkpoint(f, in, options);
    } catch (const std::exception&) {
      kept = in;
      throw;
    }
  }

  Tensors kept;
};

/// Hands out the forward's results instead of computing them again.
class ForwardResults final : public Spy {
 public:
  ForwardResults(std::vector<Tensors>& kept, bool forward) : kept_(kept), forward_(forward) {}
  bool recall(const OpCall& call, std::span<Tensor> results) override {
    if (Spy::recall(call, results)) return true;
    if (forward_ || !call.makes_tensors || next_ >= kept_.size()) return false;
    const Tensors& kept = kept_[next_];
    if (kept.size() != results.size()) return false;
    for (std::size_t i = 0; i < results.size(); ++i) results[i] = kept[i].detach();
    return true;
  }
  void done(const OpCall& call, std::span<const Tensor> results) override {
    Spy::done(call, results);
    if (!call.makes_tensors) return;
    ++next_;
    if (!forward_) return;
    kept_.emplace_back();
    for (const Tensor& t : results) kept_.back().push_back(t.detach());
  }

 private:
  std::vector<Tensors>& kept_;
  bool forward_;
  std::size_t next_ = 0;
};

/// L4
struct MergedWithForward {
  Tensors operator()(const Function& f, const Tensors& in, const CheckpointOptions& options) const {
    auto kept = std::make_shared<std::vector<Tensors>>();
    const auto run = [kept](bool forward) {
      return [kept, forward](const Function& g, const Tensors& x) {
        const ForwardResults spy(*kept, forward);
        return g(x);
      };
    };
    return checkpoint(around(f, run(true), run(false)), in, options);
  }
};

/// L6: an op that reads what the policy kept leaves its result there.
class WritesOverKept final : public Spy {
 public:
  bool recall(const OpCall& call, std::span<Tensor> results) override {
    recalled_ = Spy::recall(call, results);
    if (recalled_) {
      for (const Tensor& t : results) kept_.push_back(storage_of(t));
    }
    return recalled_;
  }
  void done(const OpCall& call, std::span<const Tensor> results) override {
    Spy::done(call, results);
    if (recalled_ || !call.makes_tensors) return;
    for (const Tensor* t : call.operands) {
      if (!t->defined() || t->bytes() != results[0].bytes()) continue;
      const bool kept = std::find(kept_.begin(), kept_.end(), storage_of(*t)) != kept_.end();
      if (kept) copy_bytes(results[0], *t);
    }
  }

 private:
  std::vector<std::uint64_t> kept_;
  bool recalled_ = false;
};

/// L5: what a segment recomputed goes when the next segment has been recomputed.
class PreviousSegmentStays final : public Mechanics {
 public:
  Tensors bind_inputs(std::span<const Tensor> saved,
                      const std::vector<bool>& requires_grad) const override {
    if (backward_ != current_backward()) {
      backward_ = current_backward();
      older_.clear();
      current_.clear();
      at_end_of_backward([this] {
        older_.clear();
        current_.clear();
      });
    }
    older_ = std::exchange(current_, {});
    return Mechanics::bind_inputs(saved, requires_grad);
  }
  void release(Tensor& recomputed) const override {
    current_.push_back(recomputed);
    Mechanics::release(recomputed);
  }

 private:
  mutable std::uint64_t backward_ = 0;
  mutable Tensors older_;
  mutable Tensors current_;
};

/// L8: the second backward finds the recomputation of the first, and nothing in it.
class OneRecomputationForAll : public Mechanics {
 public:
  std::uint64_t key_of_recomputation(std::uint64_t /*backward*/) const override { return 1; }
  bool drops_at_end() const override { return false; }
};

/// L13
class StaleRecomputation final : public OneRecomputationForAll {
 public:
  void release(Tensor& /*recomputed*/) const override {}
};

/// L9
class KeepsFirstResult final : public Spy {
 public:
  explicit KeepsFirstResult(Tensor& kept) : kept_(kept) {}
  void done(const OpCall& call, std::span<const Tensor> results) override {
    Spy::done(call, results);
    if (!kept_.defined() && !results.empty()) kept_ = results[0].detach();
  }

 private:
  Tensor& kept_;
};

struct StashBesideTheGraph {
  Tensors operator()(const Function& f, const Tensors& in, const CheckpointOptions& options) const {
    auto kept = std::make_shared<Tensor>();
    return checkpoint(around(
                          f,
                          [kept](const Function& g, const Tensors& x) {
                            const KeepsFirstResult spy(*kept);
                            return g(x);
                          },
                          [kept](const Function& g, const Tensors& x) { return g(x); }),
                      in, options);
  }
};

/// L10: the recomputation ends when its last tensor is saved, and that one is not filled yet.
class LastSaveEmpty final : public SaveSpy {
 public:
  LastSaveEmpty(int& count, bool forward) : count_(count), forward_(forward) {}
  std::unique_ptr<PackedTensor> pack(const Tensor& t) override {
    ++seen_;
    if (forward_) count_ = seen_;
    if (!forward_ && seen_ == count_) fill_bytes(t, std::byte{0});
    return SaveSpy::pack(t);
  }

 private:
  int& count_;
  bool forward_;
  int seen_ = 0;
};

struct SavedBeforeFilled {
  Tensors operator()(const Function& f, const Tensors& in, const CheckpointOptions& options) const {
    if (!options.early_stop || options.reentrant) return checkpoint(f, in, options);
    auto count = std::make_shared<int>(0);
    const auto run = [count](bool forward) {
      return [count, forward](const Function& g, const Tensors& x) {
        LastSaveEmpty hooks(*count, forward);
        return g(x);
      };
    };
    return checkpoint(around(f, run(true), run(false)), in, options);
  }
};

/// L12: other memory is written over the inputs when the recomputation is done with them.
Tensors freed_too_early(const Function& g, const Tensors& x) {
  struct Poison {
    const Tensors& inputs;
    ~Poison() {
      for (const Tensor& t : inputs) fill_bytes(t, std::byte{0xff});
    }
  } poison{x};
  return g(x);
}

/// L14
class StopsTooSoon final : public Mechanics {
 public:
  bool ends_recomputation(int saved, int expected) const override { return saved + 1 == expected; }
};

/// L14b
class NeverStops final : public Mechanics {
 public:
  bool ends_recomputation(int /*saved*/, int /*expected*/) const override { return false; }
};

/// L15
Tensors recomputed_twice(const Function& g, const Tensors& x) {
  {
    const GradMode no_grad(false);
    const HookScope no_hooks(nullptr);
    const Streams streams = ambient().streams;
    OpWatcher* watcher = std::exchange(ambient().ops, nullptr);
    g(x);
    ambient().ops = watcher;
    ambient().streams = streams;
  }
  return g(x);
}

}  // namespace
}  // namespace faulty

std::span<const Fault> lifetime_faults() {
  using namespace faulty;
  static const std::array table{
      Fault{"L1", "Recomputed tensors are kept after their use.",
            "pytorch/pytorch#77284 pytorch/pytorch#78752", with_mechanics<NothingFreed>},
      Fault{"L2", "An outer segment does not manage the inputs of a nested segment.",
            "pytorch/pytorch#178568", with_checkpoint<InputsPastTheHooks<true>>},
      Fault{"L3", "A segment's graph holds its outputs, and they hold the graph.",
            "pytorch/pytorch#80151 pytorch/pytorch#82482 pytorch/pytorch#154642",
            with_checkpoint<Cycle>},
      Fault{"L3b", "A segment that failed in the forward keeps its inputs.", "",
            with_checkpoint<KeepsWhatFailed>},
      Fault{"L4",
            "A recomputation is merged with the forward: its results are kept, not recomputed.",
            "pytorch/xla#3455 jax-ml/jax#24062", with_checkpoint<MergedWithForward>},
      Fault{"L5", "A segment is recomputed before the previous recomputation has been freed.",
            "pytorch/pytorch#193193", with_mechanics<PreviousSegmentStays>},
      Fault{"L6", "A kept result is changed in place by the recomputation.",
            "pytorch/pytorch#119590", with_runs<under<WritesOverKept>>},
      Fault{"L7", "Saved-tensor hooks around a segment do not see what it keeps.",
            "pytorch/pytorch#190581 pytorch/pytorch#147565",
            with_checkpoint<InputsPastTheHooks<false>>},
      Fault{"L8", "A second backward finds the first one's recomputation, already used up.",
            "state-spaces/mamba#909", with_mechanics<OneRecomputationForAll>},
      Fault{"L9", "A result is kept outside the graph, where nothing manages it.",
            "bitsandbytes-foundation/bitsandbytes#2034", with_checkpoint<StashBesideTheGraph>},
      Fault{"L10",
            "A recomputation ends when its last tensor is saved, before that tensor is filled.",
            "pytorch/pytorch#193671", with_checkpoint<SavedBeforeFilled>},
      Fault{"L12",
            "A segment's inputs are overwritten while the recomputation's graph still reads them.",
            "meta-pytorch/torchtune#1867", with_runs<freed_too_early>},
      Fault{"L13", "A second backward reuses the recomputation of the first.", "",
            with_mechanics<StaleRecomputation>},
      Fault{"L14", "Early stop ends a recomputation one tensor too soon.", "",
            with_mechanics<StopsTooSoon>},
      Fault{"L14b", "Early stop does not stop.", "", with_mechanics<NeverStops>},
      Fault{"L15", "A recomputation runs its function twice.", "", with_runs<recomputed_twice>},
  };
  return table;
}

}  // namespace rematch
