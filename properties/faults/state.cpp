#include <array>
#include <map>
#include <memory>
#include <vector>

#include "engine/ambient/ambient_scope.h"
#include "engine/autograd/node.h"
#include "engine/ops/arithmetic.h"
#include "engine/tensor/state_reader.h"
#include "properties/faults/families.h"
#include "properties/faults/support.h"

namespace rematch {
namespace faulty {
namespace {

/// Runs a function as if it was, or was not, a recomputation.
Tensors marked(const Function& f, const Tensors& in, bool recomputing) {
  struct Restore {
    bool before = std::exchange(ambient().recomputing, false);
    ~Restore() { ambient().recomputing = before; }
  } restore;
  ambient().recomputing = recomputing;
  return f(in);
}

Tensors as_recomputation(const Function& f, const Tensors& in) { return marked(f, in, true); }
Tensors as_forward(const Function& f, const Tensors& in) { return marked(f, in, false); }

/// Writes over what a forward kept, so that memory shows nothing.
Tensor written_over(const Tensor& kept, const Tensor& by) {
  copy_bytes(by, kept);
  return kept;
}

/// S3
class StateAsItIsNow final : public Mechanics {
 public:
  Tensor recall_state(std::span<const Tensor> read, std::size_t index,
                      const Tensor& now) const override {
    return written_over(read[index], now);
  }
};

/// S10
EngineParts nothing_recalled() {
  return {std::make_shared<StateAsItIsNow>(), with_runs<as_forward>().checkpoint};
}

/// S8
class FirstStateOnly final : public Mechanics {
 public:
  Tensor recall_state(std::span<const Tensor> read, std::size_t index,
                      const Tensor& /*now*/) const override {
    return written_over(read[index], read.front());
  }
};

/// S9
struct OneSlotPerLayer {
  /// The bytes of each state that the latest forward read.
  using Slots = std::map<std::uint64_t, std::vector<std::byte>>;

  class Slot final : public StateReader {
   public:
    explicit Slot(Slots& slots) : slots_(slots), outer_(std::exchange(ambient().states, this)) {}
    ~Slot() override { ambient().states = outer_; }
    Slot(const Slot&) = delete;
    Slot& operator=(const Slot&) = delete;
    Tensor read(const Tensor& state) override {
      Tensor value = outer_->read(state);
      std::vector<std::byte>& slot = slots_[storage_of(state)];
      if (ambient().recomputing) {
        value.copy_from_host(slot);
      } else {
        slot.resize(static_cast<std::size_t>(value.bytes()));
        value.copy_to_host(slot);
      }
      return value;
    }

   private:
    Slots& slots_;
    StateReader* outer_;
  };

  Tensors operator()(const Function& f, const Tensors& in, const CheckpointOptions& options) {
    const auto with_slots = [this](const Function& g, const Tensors& x) {
      if (ambient().states == nullptr) return g(x);
      const Slot reader(slots);
      return g(x);
    };
    return checkpoint(around(f, with_slots, with_slots), in, options);
  }

  Slots slots;
};

/// S5: each state that the segment read goes back to what the forward left, so that what later
/// forwards did is lost.
struct EffectsAgain {
  class Reads final : public StateReader {
   public:
    explicit Reads(Tensors& states)
        : states_(states), outer_(std::exchange(ambient().states, this)) {}
    ~Reads() override { ambient().states = outer_; }
    Reads(const Reads&) = delete;
    Reads& operator=(const Reads&) = delete;
    Tensor read(const Tensor& state) override {
      states_.push_back(state);
      return outer_->read(state);
    }

   private:
    Tensors& states_;
    StateReader* outer_;
  };

  struct Left {
    Tensors states;
    std::vector<std::vector<std::byte>> values;
    /// An early stop leaves a recomputation by an exception.
    struct PutBack {
      Left& left;
      ~PutBack() {
        for (std::size_t i = 0; i < left.values.size(); ++i) {
          left.states[i].copy_from_host(left.values[i]);
        }
      }
    };
  };

  Tensors operator()(const Function& f, const Tensors& in, const CheckpointOptions& options) const {
    auto left = std::make_shared<Left>();
    const auto forward = [left](const Function& g, const Tensors& x) {
      if (ambient().states == nullptr) return g(x);
      Tensors y;
      {
        const Reads reads(left->states);
        y = g(x);
      }
      for (const Tensor& state : left->states) left->values.push_back(bytes_of(state));
      return y;
    };
    const auto recomputation = [left](const Function& g, const Tensors& x) {
      const Left::PutBack again{*left};
      return g(x);
    };
    return checkpoint(around(f, forward, recomputation), in, options);
  }
};

/// Finds the nodes of a function's ops named "hooked", in their order, and the results' dtypes. A
/// result has its node when the next op begins.
class HookedNodes final : public Spy {
 public:
  explicit HookedNodes(std::function<void(const std::shared_ptr<Node>&, DType)> found)
      : found_(std::move(found)) {}
  void end() {
    if (!latest_.defined()) return;
    const std::shared_ptr<Node> node = latest_.grad_fn();
    const DType dtype = latest_.dtype();
    latest_ = Tensor();
    found_(node, dtype);
  }
  bool recall(const OpCall& call, std::span<Tensor> results) override {
    end();
    return Spy::recall(call, results);
  }
  void done(const OpCall& call, std::span<const Tensor> results) override {
    Spy::done(call, results);
    if (call.op == "hooked") latest_ = results[0];
  }

 private:
  std::function<void(const std::shared_ptr<Node>&, DType)> found_;
  Tensor latest_;
};

/// S6
struct HooksAgain {
  Tensors operator()(const Function& f, const Tensors& in, const CheckpointOptions& options) const {
    auto nodes = std::make_shared<std::vector<std::weak_ptr<Node>>>();
    const auto forward = [nodes](const Function& g, const Tensors& x) {
      HookedNodes spy([nodes](const auto& node, DType) { nodes->push_back(node); });
      Tensors y = g(x);
      spy.end();
      return y;
    };
    const auto recomputation = [nodes](const Function& g, const Tensors& x) {
      std::size_t next = 0;
      HookedNodes spy([&](const std::shared_ptr<Node>& again, DType dtype) {
        const std::shared_ptr<Node> before = next < nodes->size() ? (*nodes)[next].lock() : nullptr;
        ++next;
        if (before == nullptr || again == nullptr) return;
        // Applies the hook to a gradient of one, on a ledger that nobody reads.
        const AmbientScope apart(std::make_shared<Ledger>());
        std::array one{Tensor::ones(Shape{1}, dtype)};
        again->run_hooks(one);
        before->add_hook(
            0, [factor = one[0].at(0)](const Tensor& gradient) { return scale(gradient, factor); });
      });
      Tensors y = g(x);
      spy.end();
      return y;
    };
    return checkpoint(around(f, forward, recomputation), in, options);
  }
};

/// Identifies a segment by its ops and the tensors that it reads from outside.
class Signature final : public Spy {
 public:
  bool recall(const OpCall& call, std::span<Tensor> results) override {
    for (const char c : call.op) value_ = value_ * 31 + static_cast<std::uint64_t>(c);
    for (const Tensor* t : call.operands) {
      if (t->defined() && t->requires_grad() && t->is_leaf()) value_ = value_ * 31 + storage_of(*t);
    }
    return Spy::recall(call, results);
  }
  std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0;
};

/// S4
struct OneSlotPerSegment {
  Tensors operator()(const Function& f, const Tensors& in, const CheckpointOptions& options) {
    if (!options.preserve_rng) return checkpoint(f, in, options);
    auto key = std::make_shared<std::uint64_t>(0);
    return checkpoint(around(
                          f,
                          [this, key](const Function& g, const Tensors& x) {
                            const Streams entry = ambient().streams;
                            const Signature spy;
                            Tensors y = g(x);
                            *key = spy.value();
                            slots[*key] = entry;
                            return y;
                          },
                          [this, key](const Function& g, const Tensors& x) {
                            const auto slot = slots.find(*key);
                            if (slot != slots.end()) ambient().streams = slot->second;
                            return g(x);
                          }),
                      in, options);
  }

  std::map<std::uint64_t, Streams> slots;
};

}  // namespace
}  // namespace faulty

std::span<const Fault> state_faults() {
  using namespace faulty;
  static const std::array table{
      Fault{"S1", "A recomputation updates the states of layers a second time.",
            "pytorch/pytorch#96136 pytorch/pytorch#62471", with_runs<as_forward>},
      Fault{"S2", "The states of layers are updated in the recomputation, not in the forward.",
            "facebookresearch/fairscale#1035", with_runs<as_forward, as_recomputation>},
      Fault{"S3", "A recomputation sees the state that its forward left.",
            "huggingface/transformers#30320 NVIDIA/TransformerEngine#24 "
            "NVIDIA/TransformerEngine#1723",
            with_mechanics<StateAsItIsNow>},
      Fault{"S4",
            "A segment has one slot for its random state, so a second forward overwrites the state "
            "of the first.",
            "", with_checkpoint<OneSlotPerSegment>},
      Fault{"S5",
            "Side effects of a segment happen again in its recomputation: states that its layers "
            "read go back to what its forward left.",
            "facebookresearch/fairscale#694 pytorch/pytorch#124866", with_checkpoint<EffectsAgain>},
      Fault{"S6", "Hooks that a forward registers are registered again in its recomputation.",
            "pytorch/pytorch#187437", with_checkpoint<HooksAgain>},
      Fault{
          "S7",
          "The states of layers are reset to their values before the forward: the update is lost.",
          "", with_runs<as_recomputation, as_recomputation>},
      Fault{"S8", "Every layer of a segment gets the state that the first of them read.", "",
            with_mechanics<FirstStateOnly>},
      Fault{
          "S9",
          "A layer has one slot for the state that a forward read, so a second forward overwrites "
          "that of the first.",
          "", with_checkpoint<OneSlotPerLayer>},
      Fault{"S10",
            "A recomputation is another forward: it sees the states of layers as they are then, "
            "and updates them a second time.",
            "pytorch/pytorch#96136 pytorch/pytorch#62471", nothing_recalled},
  };
  return table;
}

}  // namespace rematch
