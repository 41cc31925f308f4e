#include "properties/faults/fault.h"

#include <array>

#include "engine/autograd/accumulate.h"

namespace rematch {
namespace {

class NoRngRestore final : public Mechanics {
 public:
  void restore_rng(Ambient& /*state*/, const Streams& /*captured*/) const override {}
};

class RngNotPutBack final : public Mechanics {
 public:
  void put_back_rng(Ambient& /*state*/, Streams /*surrounding*/) const override {}
};

class GradientReturnedTwice final : public Mechanics {
 public:
  Tensor return_gradient(const Tensor& bound) const override {
    const Tensor& g = bound.grad();
    return g.defined() ? sum_of(g, g) : g;
  }
};

class EveryInputRequiresGrad final : public Mechanics {
 public:
  Tensor bind_input(const Tensor& saved, bool /*requires_grad*/) const override {
    return Mechanics::bind_input(saved, is_floating(saved.dtype()));
  }
};

class LastSegmentCheckpointed final : public Mechanics {
 public:
  std::vector<Segment> partition(int layers, int segments, LastSegment /*last*/) const override {
    return Mechanics::partition(layers, segments, LastSegment::checkpointed);
  }
};

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

class RecomputedKept final : public Mechanics {
 public:
  void release(Tensor& /*recomputed*/) const override {}
};

}  // namespace

std::span<const Fault> faults() {
  static const NoRngRestore no_rng_restore;
  static const RngNotPutBack rng_not_put_back;
  static const GradientReturnedTwice gradient_returned_twice;
  static const EveryInputRequiresGrad every_input_requires_grad;
  static const LastSegmentCheckpointed last_segment_checkpointed;
  static const RemainderFirst remainder_first;
  static const RecomputedKept recomputed_kept;
  static const std::array table{
      Fault{"R1", "A replay draws from wherever the random streams happen to be.", &no_rng_restore},
      Fault{"R2", "Random state is not put back after a replay.", &rng_not_put_back},
      Fault{"G4", "The gradient of a segment's input is counted twice.", &gradient_returned_twice},
      Fault{"G6", "Every input of a replay requires grad.", &every_input_requires_grad},
      Fault{"P3", "The last segment is checkpointed, too.", &last_segment_checkpointed},
      Fault{"P9", "The layers that do not divide go to the first segment.", &remainder_first},
      Fault{"L1", "Recomputed tensors are kept after their use.", &recomputed_kept},
  };
  return table;
}

const Fault* find_fault(std::string_view id) {
  for (const Fault& fault : faults()) {
    if (fault.id == id) return &fault;
  }
  return nullptr;
}

}  // namespace rematch
