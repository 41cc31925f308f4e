#include "engine/checkpoint/reentrant.h"

#include <optional>
#include <string>

#include "engine/autograd/backward.h"
#include "engine/autograd/node.h"
#include "engine/autograd/saved_tensor.h"
#include "engine/checkpoint/recomputation_scope.h"

namespace rematch {
namespace {

thread_local std::int64_t frozen_warnings = 0;

// README.md, section 6: how this variant differs (RE1 to RE12).
/// The region as one node: it differentiates by running the function once more.
class ReentrantBackward final : public Node {
 public:
  ReentrantBackward(int outputs, const Function& function, const Tensors& inputs,
                    const CheckpointOptions& options, EntryState entry,
                    std::unique_ptr<Region> region)
      : Node(outputs),
        function_(function),
        mechanics_(mechanics_of(options)),
        entry_(std::move(entry)),
        region_(std::move(region)) {
    inputs_.resize(inputs.size());
    edges.reserve(inputs.size());
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      edges.push_back(gradient_edge(inputs[i]));
      inputs_[i].save(inputs[i]);
    }
  }
  std::string_view name() const override { return "CheckpointBackward"; }
  void release() noexcept override {
    inputs_.clear();
    entry_.states.clear();
    function_ = nullptr;
  }

  void vjp(std::span<Tensor> grads_out, std::span<Tensor> grads_in) override {
    if (current_backward_is_partial()) {
      throw std::invalid_argument(
          "[checkpoint] the reentrant variant cannot be differentiated by grad() or by backward() "
          "with inputs: its recomputation accumulates into every leaf; use reentrant = false");
    }
    Tensors saved;
    std::vector<bool> wanted;
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      saved.push_back(inputs_[i].get(name()));
      wanted.push_back(needs(i));
    }
    const Tensors bound = mechanics_.bind_inputs(saved, wanted);
    saved.clear();
    Tensors outputs;
    {
      // The recomputation stands for itself: hooks that happen to be active around this backward
      // must not see what it saves.
      HookScope no_hooks(nullptr);
      Region::Recomputation watcher(*region_, bound);
      RecomputationScope recomputing(mechanics_, entry_, region_->watched() ? &watcher : nullptr);
      outputs = function_(bound);
      watcher.finish();
    }
    if (outputs.size() != grads_out.size()) {
      throw CheckpointError("[checkpoint] the recomputation returned " +
                            std::to_string(outputs.size()) + " outputs, the forward " +
                            std::to_string(grads_out.size()));
    }
    mechanics_.differentiate(std::move(outputs), grads_out, bound);
    for (std::size_t i = 0; i < bound.size(); ++i) {
      if (wanted[i]) grads_in[i] = mechanics_.return_gradient(bound, i);
    }
  }

 private:
  Function function_;
  const Mechanics& mechanics_;
  EntryState entry_;
  std::unique_ptr<Region> region_;
  std::vector<SavedTensor> inputs_;
};

/// Whether the memory of `t` can be reached by anything but `t` and the tensors that it views.
bool known_elsewhere(const Tensor& t) {
  long handles = 1;
  if (t.shared_impl().use_count() > 1) return true;
  for (std::shared_ptr<TensorImpl> base = t.impl()->base; base; base = base->base) {
    // `base` here and the tensor that views it.
    if (base.use_count() > 2) return true;
    ++handles;
  }
  return t.storage().use_count() > handles;
}

}  // namespace

std::int64_t frozen_checkpoint_warnings() { return frozen_warnings; }

Tensors checkpoint_reentrant(const Function& function, const Tensors& inputs,
                             const CheckpointOptions& options) {
  const Mechanics& mechanics = mechanics_of(options);
  bool any = false;
  for (const Tensor& t : inputs) any = any || t.requires_grad();
  EntryState entry(mechanics, any && options.preserve_rng);
  std::vector<std::uint64_t> versions;
  versions.reserve(inputs.size());
  for (const Tensor& t : inputs) versions.push_back(t.version());
  auto region = std::make_unique<Region>(any ? options.determinism : DeterminismCheck::none,
                                         nullptr, mechanics.compares_versions());
  Tensors outputs;
  {
    GradMode no_grad(false);
    std::optional<StateRecording> states;
    if (any) states.emplace(entry.states);
    Region::Forward watcher(*region, inputs);
    outputs = function(inputs);
    entry.states.close();
    region->forward_is_over();
  }
  for (std::size_t i = 0; any && i < inputs.size(); ++i) {
    if (inputs[i].version() == versions[i]) continue;
    throw std::invalid_argument(
        "[checkpoint] the function changed its input " + std::to_string(i) +
        " in place, and its recomputation would do so once more; clone() the "
        "input first");
  }
  // Aliases, so that an output that is an input (or is known to the function) gets a history of
  // its own.
  for (Tensor& t : outputs) {
    if (!t.defined())
      throw std::invalid_argument("[checkpoint] the function returned an undefined tensor");
    const bool shared = known_elsewhere(t);
    t = t.detach();
    t.impl()->sealed = any && shared;
  }
  if (!any) {
    ++frozen_warnings;
    return outputs;
  }
  auto node =
      std::make_shared<ReentrantBackward>(static_cast<int>(outputs.size()), function, inputs,
                                          options, std::move(entry), std::move(region));
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (is_floating(outputs[i].dtype())) set_history(outputs[i], node, static_cast<int>(i));
  }
  return outputs;
}

}  // namespace rematch
