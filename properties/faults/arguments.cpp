#include <algorithm>
#include <array>

#include "properties/faults/families.h"
#include "properties/faults/support.h"

namespace rematch {
namespace faulty {
namespace {

/// A1
class FirstInputOnly final : public Mechanics {
 public:
  Tensors bind_inputs(std::span<const Tensor> saved,
                      const std::vector<bool>& requires_grad) const override {
    std::vector<bool> first = requires_grad;
    for (std::size_t i = 1; i < first.size(); ++i) first[i] = false;
    return Mechanics::bind_inputs(saved, first);
  }
};

/// A2
struct SideOutputsDetached {
  Tensors operator()(const Function& f, const Tensors& in, const CheckpointOptions& options) const {
    Tensors out = checkpoint(f, in, options);
    for (std::size_t i = 1; i < out.size(); ++i) out[i] = out[i].detach();
    return out;
  }
};

/// A3: all inputs but the first are captured, history and all.
struct NestedInputsCaptured {
  Tensors operator()(const Function& f, const Tensors& in, const CheckpointOptions& options) const {
    if (in.size() < 2) return checkpoint(f, in, options);
    const Function first_only = [f, rest = Tensors(in.begin() + 1, in.end())](const Tensors& x) {
      Tensors all = x;
      all.insert(all.end(), rest.begin(), rest.end());
      return f(all);
    };
    return checkpoint(first_only, {in[0]}, options);
  }
};

/// A4
class ShiftedByOne final : public Mechanics {
 public:
  Tensors bind_inputs(std::span<const Tensor> saved,
                      const std::vector<bool>& requires_grad) const override {
    Tensors bound = Mechanics::bind_inputs(saved, requires_grad);
    for (std::size_t i = 0; i + 1 < bound.size(); ++i) {
      const bool alike =
          bound[i].shape() == bound[i + 1].shape() && bound[i].dtype() == bound[i + 1].dtype();
      if (alike) std::swap(bound[i], bound[i + 1]);
    }
    return bound;
  }
};

}  // namespace
}  // namespace faulty

std::span<const Fault> argument_faults() {
  using namespace faulty;
  static const std::array table{
      Fault{"A1", "Only the first input of a segment requires grad in the recomputation.",
            "NVIDIA/Megatron-LM#4765", with_mechanics<FirstInputOnly>},
      Fault{"A2", "Outputs of a segment other than its main output have no history.",
            "unslothai/unsloth-zoo#813", with_checkpoint<SideOutputsDetached>},
      Fault{"A3", "Inputs after the first are captured with their history instead of saved.",
            "pytorch/pytorch#124725 pytorch/pytorch#178568", with_checkpoint<NestedInputsCaptured>},
      Fault{"A4", "In the recomputation, inputs of the same shape are shifted by one position.",
            "unslothai/unsloth-zoo#1218 tensorflow/tensorflow#55304", with_mechanics<ShiftedByOne>},
  };
  return table;
}

}  // namespace rematch
