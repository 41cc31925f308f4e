#include <algorithm>
#include <array>

#include "engine/autograd/backward.h"
#include "engine/tensor/accumulate.h"
#include "properties/faults/families.h"
#include "properties/faults/support.h"

namespace rematch {
namespace faulty {
namespace {

bool any_requires_grad(const Tensors& tensors) {
  return std::any_of(tensors.begin(), tensors.end(),
                     [](const Tensor& t) { return t.requires_grad(); });
}

/// G1: what the reentrant variant cannot help, done by the other one.
struct GateOnInputs {
  Tensors operator()(const Function& f, const Tensors& in, const CheckpointOptions& options) const {
    if (any_requires_grad(in)) return checkpoint(f, in, options);
    const GradMode no_grad(false);
    return f(in);
  }
};

/// G2
struct OutputsAlwaysNeedGrad {
  Tensors operator()(const Function& f, const Tensors& in, const CheckpointOptions& options) const {
    Tensors out = checkpoint(f, in, options);
    if (!ambient().grad_enabled) return out;
    for (Tensor& t : out) {
      if (t.requires_grad() || !is_floating(t.dtype())) continue;
      t = t.detach();
      t.set_requires_grad(true);
    }
    return out;
  }
};

/// G3
class InputsAreTheOnlySources final : public Mechanics {
 public:
  void differentiate(Tensors outputs, std::span<Tensor> gradients,
                     std::span<const Tensor> bound) const override {
    Tensors roots;
    Tensors given;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (!gradients[i].defined() || !outputs[i].requires_grad()) continue;
      roots.push_back(outputs[i]);
      given.push_back(gradients[i]);
    }
    Tensors sources;
    for (const Tensor& t : bound) {
      if (t.requires_grad()) sources.push_back(t);
    }
    if (!sources.empty() && !roots.empty()) {
      backward(roots, given, {.retain_graph = false, .inputs = sources});
    }
  }
};

/// G4
class CountedTwice final : public Mechanics {
 public:
  Tensor return_gradient(std::span<const Tensor> bound, std::size_t index) const override {
    const Tensor g = Mechanics::return_gradient(bound, index);
    return g.defined() ? sum_of(g, g) : g;
  }
};

/// The last input that is the same tensor as input `index`.
std::size_t last_of_its_kind(std::span<const Tensor> bound, std::size_t index) {
  std::size_t last = index;
  for (std::size_t i = index; i < bound.size(); ++i) {
    const bool same = storage_of(bound[i]) == storage_of(bound[index]);
    if (same && bound[i].shape() == bound[index].shape()) last = i;
  }
  return last;
}

/// G5
class KeyedByIdentity final : public Mechanics {
 public:
  Tensor return_gradient(std::span<const Tensor> bound, std::size_t index) const override {
    return Mechanics::return_gradient(bound, last_of_its_kind(bound, index));
  }
};

/// G6
class AllRequireGrad final : public Mechanics {
 public:
  Tensors bind_inputs(std::span<const Tensor> saved,
                      const std::vector<bool>& /*requires_grad*/) const override {
    std::vector<bool> all;
    for (const Tensor& t : saved) all.push_back(is_floating(t.dtype()));
    return Mechanics::bind_inputs(saved, all);
  }
};

/// G6b
class NoneRequiresGrad final : public Mechanics {
 public:
  Tensors bind_inputs(std::span<const Tensor> saved,
                      const std::vector<bool>& /*requires_grad*/) const override {
    return Mechanics::bind_inputs(saved, std::vector<bool>(saved.size(), false));
  }
};

/// G7
struct ViewBypassesNode {
  Tensors operator()(const Function& f, const Tensors& in, const CheckpointOptions& options) const {
    Tensors out = checkpoint(f, in, options);
    for (Tensor& t : out) {
      const bool view = std::any_of(
          in.begin(), in.end(), [&](const Tensor& x) { return storage_of(x) == storage_of(t); });
      if (view) t = t.detach();
    }
    return out;
  }
};

/// G8: the function's own differentiation writes into what the user handed in.
struct LeaksIntoLeaf {
  Tensors operator()(const Function& f, const Tensors& in, const CheckpointOptions& options) const {
    for (Tensor t : in) {
      if (!ambient().grad_enabled || !t.requires_grad() || !t.is_leaf()) continue;
      // The leaf keeps its hooks; a handle in one of them would keep the leaf.
      t.register_hook([leaf = std::weak_ptr<TensorImpl>(t.shared_impl())](const Tensor& g) {
        Tensor same(leaf.lock());
        same.set_grad(same.grad().defined() ? sum_of(same.grad(), g) : g.clone(Tag::gradients));
        return Tensor();
      });
    }
    return checkpoint(f, in, options);
  }
};

/// G9: each segment walks a graph of its own.
struct HooksPerSegment {
  Tensors operator()(const Function& f, const Tensors& in, CheckpointOptions options) const {
    if (any_requires_grad(in) && !options.policy) options.reentrant = true;
    return checkpoint(f, in, options);
  }
};

/// G10
class ReturnsZeros final : public Mechanics {
 public:
  Tensor return_gradient(std::span<const Tensor> bound, std::size_t index) const override {
    return Tensor::zeros(bound[index].shape(), bound[index].dtype());
  }
};

/// G11
class FirstOutputOnly final : public Mechanics {
 public:
  void differentiate(Tensors outputs, std::span<Tensor> gradients,
                     std::span<const Tensor> bound) const override {
    bool found = false;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (found) gradients[i] = Tensor();
      found = found || (gradients[i].defined() && outputs[i].requires_grad());
    }
    Mechanics::differentiate(std::move(outputs), gradients, bound);
  }
};

/// G12
class OnesForUnused final : public Mechanics {
 public:
  void differentiate(Tensors outputs, std::span<Tensor> gradients,
                     std::span<const Tensor> bound) const override {
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (gradients[i].defined() || !outputs[i].requires_grad()) continue;
      gradients[i] = Tensor::ones(outputs[i].shape(), outputs[i].dtype());
    }
    Mechanics::differentiate(std::move(outputs), gradients, bound);
  }
};

/// G13
class Overwrites final : public Mechanics {
 public:
  Tensor return_gradient(std::span<const Tensor> bound, std::size_t index) const override {
    if (last_of_its_kind(bound, index) != index) return {};
    return Mechanics::return_gradient(bound, index);
  }
};

/// G14
class OneOutputAtATime final : public Mechanics {
 public:
  void differentiate(Tensors outputs, std::span<Tensor> gradients,
                     std::span<const Tensor> bound) const override {
    std::vector<std::size_t> used;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (gradients[i].defined() && outputs[i].requires_grad()) used.push_back(i);
    }
    if (used.empty()) return Mechanics::differentiate(std::move(outputs), gradients, bound);
    while (!used.empty()) {
      const std::size_t i = used.back();
      used.pop_back();
      backward(std::span(&outputs[i], 1), std::span(&gradients[i], 1),
               {.retain_graph = !used.empty(), .inputs = {}});
    }
  }
};

/// G15
class IntoTheLastOne final : public Mechanics {
 public:
  Tensor return_gradient(std::span<const Tensor> bound, std::size_t index) const override {
    Tensor g = Mechanics::return_gradient(bound, index);
    if (!g.defined()) return g;
    const Tensor last(last_.lock());
    const bool fits = last.defined() && last.shape() == g.shape() && last.dtype() == g.dtype();
    if (fits) copy_bytes(g, last);
    last_ = g.shared_impl();
    return g;
  }

 private:
  mutable std::weak_ptr<TensorImpl> last_;
};

}  // namespace
}  // namespace faulty

std::span<const Fault> gradient_faults() {
  using namespace faulty;
  static const std::array table{
      Fault{"G1",
            "A segment without an input that requires grad is not recorded, in either variant.",
            "pytorch/pytorch#7617 huggingface/transformers#23170 facebookresearch/fairseq#3583",
            with_checkpoint<GateOnInputs>},
      Fault{"G2", "Outputs of a segment require grad although nothing in the segment does.",
            "facebookresearch/fairscale#787", with_checkpoint<OutputsAlwaysNeedGrad>},
      Fault{"G3", "A recomputation is differentiated with respect to its inputs only.",
            "chainer/chainer#5179", with_mechanics<InputsAreTheOnlySources>},
      Fault{"G4", "The gradient of a segment's input is counted twice.",
            "unslothai/unsloth-zoo#892", with_mechanics<CountedTwice>},
      Fault{"G5",
            "Gradients are stored per tensor, so a tensor passed twice gets the last one twice.",
            "tensorflow/tensorflow#36999", with_mechanics<KeyedByIdentity>},
      Fault{"G6", "Every input of a recomputation requires grad.", "PaddlePaddle/Paddle#62979",
            with_mechanics<AllRequireGrad>},
      Fault{"G6b", "No input of a recomputation requires grad.", "PaddlePaddle/Paddle#62979",
            with_mechanics<NoneRequiresGrad>},
      Fault{"G7", "An output that shares its memory with an input has no history.",
            "pytorch/pytorch#36383 pytorch/pytorch#26546", with_checkpoint<ViewBypassesNode>},
      Fault{"G8", "A recomputation accumulates the gradient of a leaf input, and also returns it.",
            "pytorch/pytorch#33999", with_checkpoint<LeaksIntoLeaf>},
      Fault{"G9",
            "Each non-reentrant segment accumulates separately, so hooks fire once per segment.",
            "pytorch/pytorch#81296", with_checkpoint<HooksPerSegment>},
      Fault{"G10", "The gradient of a segment's input is zeros.", "pytorch/xla#3486",
            with_mechanics<ReturnsZeros>},
      Fault{"G11", "Only the gradient of a segment's first output is used.", "",
            with_mechanics<FirstOutputOnly>},
      Fault{"G12", "An unused output gets ones as its gradient.", "",
            with_mechanics<OnesForUnused>},
      Fault{"G13", "When a tensor is passed twice, one of its gradients overwrites the other.", "",
            with_mechanics<Overwrites>},
      Fault{"G14",
            "The outputs of a recomputation are differentiated one at a time, last to first.", "",
            with_mechanics<OneOutputAtATime>},
      Fault{"G15",
            "The gradient of a segment's input overwrites the one that was returned before it.", "",
            with_mechanics<IntoTheLastOne>},
  };
  return table;
}

}  // namespace rematch
