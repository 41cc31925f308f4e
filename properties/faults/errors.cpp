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
            return checkpoint(around(f, as_it_is,
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
            "The node of a tensor that was not saved refuses when it asks for it; a tensor that no "
            "node asks for is not missed."},
      Fault{"E3", "Versions of what a recomputation reads are not compared.", "",
            with_mechanics<VersionsUnchecked>},
      Fault{"E4", "Random state is not put back when a recomputation fails.", "", left_after_error},
      Fault{"E4b", "After a segment failed in the forward, nothing is recorded any more.", "",
            with_checkpoint<NoRecordingAfterError>},
      Fault{"E5", "A check on values turns early stop on, whatever was asked.",
            "pytorch/pytorch#76737 huggingface/transformers#26221",
            with_checkpoint<EarlyStopForced>},
      Fault{"E6", "A recomputation may save more tensors than its forward.", "", nullptr,
            "What saves more runs another op, or has another operand that requires grad; either is "
            "refused for itself. With early stop there is no more: the recomputation has ended."},
  };
  return table;
}

}  // namespace rematch
