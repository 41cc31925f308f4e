#include <algorithm>
#include <array>
#include <memory>

#include "engine/tensor/accumulate.h"
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

/// E7: what is compared has one extent in place of all from the fifth on.
class FourExtents final : public Spy {
 public:
  bool recall(const OpCall& call, std::span<Tensor> results) override {
    if (call.operands.size() != 1) return Spy::recall(call, results);
    const Tensor cut = cut_off(**call.operands.begin());
    return Spy::recall({call.op, {&cut}, call.attributes, call.makes_tensors, call.computes_in},
                       results);
  }

 private:
  static Tensor cut_off(const Tensor& t) {
    if (!t.defined() || t.shape().rank() <= 4) return t;
    const Shape& s = t.shape();
    return reshape_alias(t, {s[0], s[1], s[2], s[3], t.elements() / (s[0] * s[1] * s[2] * s[3])});
  }
  struct Uncut final : PackedTensor {
    Tensor unpack() override { return reshape_alias(packed->unpack(), shape); }
    std::unique_ptr<PackedTensor> packed;
    Shape shape;
  };
  struct Saves final : SaveSpy {
    std::unique_ptr<PackedTensor> pack(const Tensor& t) override {
      auto whole = std::make_unique<Uncut>();
      whole->packed = SaveSpy::pack(cut_off(t));
      whole->shape = t.shape();
      if (whole->packed == nullptr) return nullptr;
      return whole;
    }
  } saves_;
};

/// E8: what is compared has zeros there.
class FirstMebibyte final : public SaveSpy {
 public:
  std::unique_ptr<PackedTensor> pack(const Tensor& t) override {
    constexpr std::ptrdiff_t kRead = 1 << 20;
    if (t.bytes() <= kRead) return SaveSpy::pack(t);
    struct Whole {
      Tensor tensor;
      std::vector<std::byte> bytes;
      ~Whole() { tensor.copy_from_host(bytes); }
    } whole{t, bytes_of(t)};
    std::vector<std::byte> read = whole.bytes;
    std::fill(read.begin() + kRead, read.end(), std::byte{0});
    whole.tensor.copy_from_host(read);
    return SaveSpy::pack(t);
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
      Fault{"E7", "Of shapes, the first four extents and the number of elements are compared.", "",
            with_runs<under<FourExtents>, under<FourExtents>>},
      Fault{"E8", "The determinism check on values reads the first mebibyte of a tensor.", "",
            with_runs<under<FirstMebibyte>, under<FirstMebibyte>>},
  };
  return table;
}

}  // namespace rematch
