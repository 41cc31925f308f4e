#include <array>
#include <memory>

#include "properties/faults/families.h"
#include "properties/faults/support.h"

namespace rematch {
namespace faulty {
namespace {

/// E1
struct NothingCompared {
  Tensors operator()(const Function& f, const Tensors& in, CheckpointOptions options) const {
    options.determinism = DeterminismCheck::none;
    return checkpoint(f, in, options);
  }
};

/// E4
class LeftAfterError final : public Mechanics {
 public:
  void put_back_rng(Ambient& state, Streams surrounding) const override {
    if (!failed) Mechanics::put_back_rng(state, std::move(surrounding));
    failed = false;
  }
  mutable bool failed = false;
};

EngineParts left_after_error() {
  auto mechanics = std::make_shared<LeftAfterError>();
  const LeftAfterError* const seen = mechanics.get();
  return {mechanics,
          [seen](const Function& f, const Tensors& in, const CheckpointOptions& options) {
            return checkpoint(around(f, run_function,
                                     [seen](const Function& g, const Tensors& x) {
                                       try {
                                         return g(x);
                                       } catch (const std::exception&) {
                                         seen->failed = true;
                                         throw;
                                       }
                                     }),
                              in, options);
          }};
}

/// E4b
struct NoRecordingAfterError {
  Tensors operator()(const Function& f, const Tensors& in, const CheckpointOptions& options) const {
    try {
      return checkpoint(f, in, options);
    } catch (const std::exception&) {
      ambient().grad_enabled = false;
      throw;
    }
  }
};

/// E5
struct EarlyStopForced {
  Tensors operator()(const Function& f, const Tensors& in, CheckpointOptions options) const {
    if (options.determinism == DeterminismCheck::values) options.early_stop = true;
    return checkpoint(f, in, options);
  }
};

}  // namespace
}  // namespace faulty

std::span<const Fault> error_faults() {
  using namespace faulty;
  static const std::array table{
      Fault{"E1", "Recomputations are not compared with their forward.", "",
            with_checkpoint<NothingCompared>},
      Fault{"E2", "A recomputation may save fewer tensors than its forward.", "", nullptr,
            "If a node asks for a tensor that was not saved, it raises an error; a tensor that no "
            "node asks for makes no difference."},
      Fault{"E3",
            "Versions of the tensors that a recomputation reads are not compared, so it uses the "
            "weights' values at backward time.",
            "", with_mechanics<VersionsUnchecked>},
      Fault{"E4", "The random state is not restored when a recomputation fails.", "",
            left_after_error},
      Fault{"E4b", "After a segment fails in the forward, recording stays off.", "",
            with_checkpoint<NoRecordingAfterError>},
      Fault{"E5", "The determinism check on values turns early stop on, even if it was turned off.",
            "pytorch/pytorch#76737 huggingface/transformers#26221",
            with_checkpoint<EarlyStopForced>},
      Fault{"E6", "A recomputation may save more tensors than its forward.", "", nullptr,
            "A recomputation that saves more runs another op, or has another operand that requires "
            "grad; each is an error already. With early stop the recomputation ends before it "
            "saves more."},
  };
  return table;
}

}  // namespace rematch
