#include <array>
#include <unordered_map>

#include "properties/faults/families.h"
#include "properties/faults/support.h"

namespace rematch {
namespace faulty {
namespace {

/// R1
class NothingRestored final : public Mechanics {
 public:
  void restore_rng(Ambient& /*state*/, const Streams& /*captured*/) const override {}
};

/// R2
class NotPutBack final : public Mechanics {
 public:
  void put_back_rng(Ambient& /*state*/, Streams /*surrounding*/) const override {}
};

/// R3: to restore a live handle from itself does nothing, before the recomputation and after.
class LiveHandle final : public Mechanics {
 public:
  void restore_rng(Ambient& /*state*/, const Streams& /*captured*/) const override {}
  void put_back_rng(Ambient& /*state*/, Streams /*surrounding*/) const override {}
};

/// R4
class OneSlot final : public Mechanics {
 public:
  Streams capture_rng(const Ambient& state) const override { return slot_ = state.streams; }
  void restore_rng(Ambient& state, const Streams& /*captured*/) const override {
    state.streams = Streams(slot_);
  }

 private:
  mutable Streams slot_;
};

/// R5
class FirstStreamOnly final : public Mechanics {
 public:
  void restore_rng(Ambient& state, const Streams& captured) const override {
    state.streams.at(0) = captured.states()[0];
  }
};

/// R6: with one stream there is no wrong one.
class NextStream final : public Mechanics {
 public:
  void restore_rng(Ambient& state, const Streams& captured) const override {
    Mechanics::restore_rng(state, captured);
    const int n = state.streams.size();
    for (int i = 0; i < n; ++i) {
      const auto next = static_cast<std::size_t>((i + 1) % n);
      state.streams.at(i).offset = captured.states()[next].offset;
    }
  }
};

/// Notes whether one of the kinds that the predicate knows has drawn.
class KnownDraws final : public Spy {
 public:
  explicit KnownDraws(bool& seen) : seen_(seen) {}
  bool recall(const OpCall& call, std::span<Tensor> results) override {
    const bool known = draws(call.op) && call.op != "rrelu";
    seen_ = seen_ || known || call.op == "attention" || call.op == "moe";
    return Spy::recall(call, results);
  }

 private:
  bool& seen_;
};

/// R7
struct ForgetsRrelu {
  Tensors operator()(const Function& f, const Tensors& in, const CheckpointOptions& options) const {
    // Without preserved state there is nothing to decide.
    auto has_rng = std::make_shared<bool>(!options.preserve_rng);
    return checkpoint(around(
                          f,
                          [has_rng](const Function& g, const Tensors& x) {
                            const KnownDraws spy(*has_rng);
                            return g(x);
                          },
                          [has_rng](const Function& g, const Tensors& x) {
                            if (!*has_rng) skip_draws(64);
                            return g(x);
                          }),
                      in, options);
  }
};

/// R8
struct PolicyWithoutState {
  Tensors operator()(const Function& f, const Tensors& in, CheckpointOptions options) const {
    if (options.policy) options.preserve_rng = false;
    return checkpoint(f, in, options);
  }
};

/// While it lives, every seed is another one.
class MixedSeed {
 public:
  explicit MixedSeed(std::uint64_t with) : with_(with) { mix(); }
  ~MixedSeed() { mix(); }
  MixedSeed(const MixedSeed&) = delete;
  MixedSeed& operator=(const MixedSeed&) = delete;

 private:
  void mix() {
    Streams& streams = ambient().streams;
    for (int i = 0; i < streams.size(); ++i) streams.at(i).seed ^= with_;
  }
  std::uint64_t with_;
};

/// R9: the seed is mixed with the place of the tensor that holds it.
struct MaskByAddress {
  Tensors operator()(const Function& f, const Tensors& in, const CheckpointOptions& options) const {
    // Counted from here, places are the same in every run.
    const std::uint64_t origin = Storage::next_id();
    return checkpoint(around(f, run_function,
                             [origin](const Function& g, const Tensors& x) {
                               const MixedSeed mixed(Storage::next_id() - origin);
                               return g(x);
                             }),
                      in, options);
  }
};

/// Puts streams back that an op has moved, before the op computes.
class DrawSpy : public Spy {
 public:
  bool recall(const OpCall& call, std::span<Tensor> results) override {
    const bool kept = Spy::recall(call, results);
    if (draws(call.op)) {
      for (int i = 0; i < ambient().streams.size(); ++i) {
        Generator& g = ambient().streams.at(i);
        const std::uint64_t before = i < before_.size() ? before_.at(i).offset : 0;
        if (g.offset != before) moved(call, kept, before, g);
      }
    }
    before_ = ambient().streams;
    return kept;
  }

 protected:
  /// A draw has moved `g` from `before`.
  virtual void moved(const OpCall& call, bool kept, std::uint64_t before, Generator& g) = 0;

 private:
  Streams before_ = ambient().streams;
};

/// R10
class KeptDrawStandsStill final : public DrawSpy {
  void moved(const OpCall& /*call*/, bool kept, std::uint64_t before, Generator& g) override {
    if (kept) g.offset = before;
  }
};

/// R12
class NoWholeBlocks final : public DrawSpy {
  void moved(const OpCall& call, bool /*kept*/, std::uint64_t before, Generator& g) override {
    g.offset = before + static_cast<std::uint64_t>((*call.operands.begin())->elements());
  }
};

/// R11
struct CapturedAtExit {
  Tensors operator()(const Function& f, const Tensors& in, const CheckpointOptions& options) const {
    auto at_exit = std::make_shared<Streams>();
    const bool preserved = options.preserve_rng;
    return checkpoint(around(
                          f,
                          [at_exit](const Function& g, const Tensors& x) {
                            Tensors y = g(x);
                            *at_exit = ambient().streams;
                            return y;
                          },
                          [at_exit, preserved](const Function& g, const Tensors& x) {
                            if (preserved) ambient().streams = *at_exit;
                            return g(x);
                          }),
                      in, options);
  }
};

}  // namespace
}  // namespace faulty

std::span<const Fault> random_faults() {
  using namespace faulty;
  static const std::array table{
      Fault{"R1", "A recomputation draws from the current position of the random streams.",
            "pytorch/pytorch#14253 PaddlePaddle/Paddle#21298 microsoft/onnxruntime#19715",
            with_mechanics<NothingRestored>},
      Fault{"R2", "The random streams are not restored after a recomputation.",
            "pytorch/pytorch#14253", with_mechanics<NotPutBack>},
      Fault{"R3", "The random state is kept as a live handle, so restoring it has no effect.",
            "NVIDIA/Megatron-LM#5841", with_mechanics<LiveHandle>},
      Fault{"R4", "All segments share one slot for their random state.", "",
            with_mechanics<OneSlot>},
      Fault{"R5", "Only the default random stream is restored, not the user's own.",
            "pytorch/pytorch#14518 pytorch/pytorch#194478 pytorch/xla#4690",
            with_mechanics<FirstStreamOnly>},
      Fault{"R6", "Each random stream is restored from the state of another one.",
            "pytorch/pytorch#128478", with_mechanics<NextStream>},
      Fault{"R7", "The list of ops that decides whether a segment draws lacks rrelu.",
            "allenai/OLMo-core#828", with_checkpoint<ForgetsRrelu>},
      Fault{"R8", "Under a policy, random ops are recomputed without their random state.",
            "pytorch/pytorch#190717 pytorch/pytorch#190759", with_checkpoint<PolicyWithoutState>},
      Fault{"R9", "A mask depends on the memory address of its operand.",
            "facebookresearch/xformers#173", with_checkpoint<MaskByAddress>},
      Fault{"R10", "A kept random op does not advance its stream in the recomputation.", "",
            with_runs<under<KeptDrawStandsStill>>},
      Fault{"R11", "The random state is captured when the segment ends, not when it begins.", "",
            with_checkpoint<CapturedAtExit>},
      Fault{"R12", "In a recomputation a draw uses one word per element, not whole blocks of four.",
            "", with_runs<under<NoWholeBlocks>>},
  };
  return table;
}

}  // namespace rematch
