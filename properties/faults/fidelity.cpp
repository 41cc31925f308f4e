#include <array>

#include "properties/faults/families.h"
#include "properties/faults/support.h"
#include "properties/faults/threads.h"

namespace rematch {
namespace faulty {
namespace {

/// F1
class AutocastLost final : public Mechanics {
 public:
  void restore_autocast(Ambient& /*state*/, const Autocast& /*captured*/) const override {}
};

/// F2: evaluation drops nothing.
class DropoutInEvaluation final : public Spy {
 public:
  bool recall(const OpCall& call, std::span<Tensor> results) override {
    if (Spy::recall(call, results)) return true;
    if (call.op != "dropout") return false;
    const Tensor& x = **call.operands.begin();
    results[0] = x.detach();
    results[1] = Tensor::ones(x.shape(), DType::uint8);
    return true;
  }
};

/// F4
Tensors run_on_another_thread(const Function& g, const Tensors& x) {
  Tensors y;
  on_another_thread([&] {
    // State that is local to a thread is new there.
    ambient().streams = Streams();
    ambient().autocast = Autocast();
    y = g(x);
  });
  return y;
}

/// F5: the last bit of a sum depends on the order of its terms.
class OtherOrder final : public Spy {
 public:
  void done(const OpCall& call, std::span<const Tensor> results) override {
    Spy::done(call, results);
    if ((call.op != "linear" && call.op != "conv2d") || results[0].elements() == 0) return;
    std::vector<std::byte> bytes = bytes_of(results[0]);
    bytes[0] ^= std::byte{1};
    Tensor same = results[0];
    same.copy_from_host(bytes);
  }
};

/// F6
class OtherOfEqual final : public Spy {
 public:
  void done(const OpCall& call, std::span<const Tensor> results) override {
    Spy::done(call, results);
    if (call.op != "max_pool2d") return;
    const std::vector<double> x = (*call.operands.begin())->to_vector();
    const std::vector<double> index = results[1].to_vector();
    const Shape& in = (*call.operands.begin())->shape();
    const Shape& out = results[1].shape();
    const auto plane = static_cast<std::size_t>(in[2] * in[3]);
    const auto cells = static_cast<std::size_t>(out[2] * out[3]);
    std::vector<std::int32_t> other(index.size());
    for (std::size_t i = 0; i < index.size(); ++i) {
      const auto at = static_cast<std::size_t>(index[i]);
      const std::size_t first = cells == 0 ? 0 : i / cells * plane;
      other[i] = static_cast<std::int32_t>(at);
      // On the right and of the same row, be it in the window or not.
      if ((at + 1) % static_cast<std::size_t>(in[3]) == 0) continue;
      if (x[first + at] == x[first + at + 1]) ++other[i];
    }
    Tensor same = results[1];
    same.copy_from_host(std::as_bytes(std::span(other)));
  }
};

/// F8: captured, inputs are what they are when the recomputation comes.
struct InputsAsTheyAre {
  Tensors operator()(const Function& f, const Tensors& in, const CheckpointOptions& options) const {
    if (options.reentrant) return checkpoint(f, in, options);
    CheckpointOptions captured = options;
    captured.mechanics = &unchecked;
    return checkpoint([f, in](const Tensors&) { return f(in); }, {}, captured);
  }

  VersionsUnchecked unchecked;
};

}  // namespace
}  // namespace faulty

std::span<const Fault> fidelity_faults() {
  using namespace faulty;
  static const std::array table{
      Fault{"F1", "A recomputation runs under the autocast settings of the backward.",
            "pytorch/pytorch#71169 NVIDIA/Megatron-LM#7538", with_mechanics<AutocastLost>},
      Fault{"F2", "A recomputation runs in eval mode, so dropout drops nothing.",
            "adapter-hub/adapters#732 huggingface/peft#2826",
            with_runs<under<DropoutInEvaluation>>},
      Fault{"F3", "A recomputation finds a warm cast cache where its forward found a cold one.",
            "pytorch/pytorch#193338", nullptr,
            "The cache holds values per tensor and version, without history. Warm or cold, an op "
            "computes the same bits and records the same nodes."},
      Fault{"F4", "A recomputation runs on another thread, with that thread's local state.",
            "pytorch/torchtitan#4149", with_runs<run_on_another_thread>},
      Fault{"F5", "A recomputation sums in a different order.", "pytorch/pytorch#166926",
            with_runs<under<OtherOrder>>},
      Fault{"F6", "Where two values tie for the maximum, a recomputation picks the other one.",
            "pytorch/torchtitan#1117", with_runs<under<OtherOfEqual>>},
      Fault{"F7", "Strides are not restored.", "pytorch/pytorch#48439", nullptr,
            "Tensors are dense and row-major, so there is only one layout."},
      Fault{"F8",
            "Inputs are references, not snapshots: a recomputation uses their values at backward "
            "time.",
            "NVIDIA/TransformerEngine#1190", with_checkpoint<InputsAsTheyAre>},
  };
  return table;
}

}  // namespace rematch
