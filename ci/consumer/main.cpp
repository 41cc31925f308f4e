// A checkpoint() of one's own, judged by every law: a program with the commands of `rematch`.
#include <algorithm>

#include "engine/autograd/node.h"
#include "engine/autograd/saved_tensor.h"
#include "engine/checkpoint/recomputation_scope.h"
#include "properties/cli/program.h"
#include "properties/hunt/registry.h"
#include "properties/subjects/engine_subject.h"

using namespace rematch;

/// One node for the whole function: its backward runs the function once more and differentiates
/// that.
struct Recompute final : Node {
  Recompute(const Function& f, const Tensors& in, const Tensors& out, EntryState begin)
      : Node(static_cast<int>(out.size())), function(f), saved(in.size()), entry(std::move(begin)) {
    for (std::size_t i = 0; i < in.size(); ++i) {
      edges.push_back(gradient_edge(in[i]));
      saved[i].save(in[i]);
    }
  }
  std::string_view name() const override { return "Recompute"; }
  void release() noexcept override { saved.clear(); }
  void vjp(std::span<Tensor> grads_out, std::span<Tensor> grads_in) override {
    Tensors in, out;
    for (const SavedTensor& tensor : saved) in.push_back(tensor.get(name()).detach());
    for (std::size_t i = 0; i < in.size(); ++i) in[i].set_requires_grad(needs(i));
    {
      RecomputationScope as_in_the_forward(correct_mechanics(), entry, nullptr);
      out = function(in);
    }
    correct_mechanics().differentiate(std::move(out), grads_out, in);
    for (std::size_t i = 0; i < in.size(); ++i) grads_in[i] = in[i].grad();
  }
  Function function;
  std::vector<SavedTensor> saved;
  EntryState entry;
};

Tensors my_checkpoint(const Function& function, const Tensors& in,
                      const CheckpointOptions& options) {
  if (!options.reentrant) return checkpoint(function, in, options);
  // The mistake: the recomputation draws on, where it should draw what its forward drew.
  EntryState entry(correct_mechanics(), /*preserve_rng=*/false);
  Tensors out;
  {
    const GradMode no_grad(false);
    const StateRecording states(entry.states);
    out = function(in);
    entry.states.close();
  }
  if (std::none_of(in.begin(), in.end(), [](auto& t) { return t.requires_grad(); })) return out;
  const auto node = std::make_shared<Recompute>(function, in, out, std::move(entry));
  for (std::size_t i = 0; i < out.size(); ++i) {
    set_history(out[i] = out[i].detach(), node, static_cast<int>(i));
  }
  return out;
}

int main(int argc, char** argv) {
  add_subject("mine", [](Device device) {
    return std::make_unique<EngineSubject>(EngineParts{nullptr, my_checkpoint}, device);
  });
  return cli::run_program(argc, argv);
}
