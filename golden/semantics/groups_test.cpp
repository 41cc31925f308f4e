// Backwards that share a recomputation.
#include "engine/checkpoint/backward_group.h"
#include "engine/ops/activation.h"
#include "engine/ops/arithmetic.h"
#include "engine/testing/values.h"
#include "golden/semantics/testing/rules.h"
#include "golden/semantics/testing/situations.h"

namespace rematch::golden {
namespace {

using nlohmann::json;

const Function kTanhAndSigmoid = [](const Tensors& in) -> Tensors {
  return {tanh(in[0]), sigmoid(in[0])};
};

/// A group, or none.
class MaybeGroup {
 public:
  explicit MaybeGroup(bool grouped) {
    if (grouped) group_.emplace();
  }

 private:
  std::optional<BackwardGroup> group_;
};

Tensors two(const Function& f, const Tensor& x) { return checkpoint(f, {x}); }

}  // namespace

RULE("N16", "the backwards of a group recompute each checkpoint once") {
  Tensors gradients;
  json shared;
  for (const bool grouped : {false, true}) {
    const Tensor x = variable({0.5, -1});
    int runs = 0;
    const Tensors y = two(counted(runs, kTanhAndSigmoid), x);
    const MaybeGroup scope(grouped);
    backward(sum(y[0]));
    backward(sum(y[1]));
    shared[grouped ? "runs_in_a_group" : "runs_without_a_group"] = runs;
    gradients.push_back(x.grad());
  }
  shared["verdict_in_a_group"] = judged([&] { return Tensors{gradients[1]}; }, {gradients[0]});
  seen.add("N16.shared", shared);

  int reentrant_runs = 0;
  const Tensor z = sum(reentrant(counted_one(reentrant_runs, tanh), {variable({0.5})}));
  json runs_after;
  {
    const BackwardGroup group;
    for (int i = 0; i < 2; ++i) {
      backward(z, {.retain_graph = true});
      runs_after.push_back(reentrant_runs);
    }
  }
  seen.add("N16.reentrant", {{"runs", runs_after}});

  json nested;
  for (const bool grouped : {false, true}) {
    int inner_runs = 0;
    int outer_runs = 0;
    const Function inner = counted(inner_runs, kTanhAndSigmoid);
    const Function outer =
        counted(outer_runs, [&](const Tensors& in) -> Tensors { return two(inner, tanh(in[0])); });
    const Tensors y = two(outer, variable({0.5, -1}));
    const std::string suffix = grouped ? "_in_a_group" : "_without_a_group";
    {
      const MaybeGroup scope(grouped);
      nested["error" + suffix] = outcome([&] {
        backward(sum(y[0]), {.retain_graph = true});
        backward(sum(y[1]));
      });
    }
    nested["runs" + suffix] = {outer_runs, inner_runs};
  }
  seen.add("N16.nested_checkpoints", nested);

  int runs = 0;
  const Tensor y = sum(non_reentrant(counted_one(runs, tanh), {variable({0.5})}));
  json counts;
  for (int i = 0; i < 2; ++i) {
    const BackwardGroup group;
    backward(y, {.retain_graph = true});
    counts.push_back(runs);
  }
  seen.add("N16.two_groups", {{"runs", counts}});
}

RULE("N16", "backwards of a group must not need the same saved tensor, and groups do not nest") {
  int runs = 0;
  const Tensor y = sum(non_reentrant(counted_one(runs, tanh), {variable({0.5})}));
  json overlap;
  {
    const BackwardGroup group;
    backward(y, {.retain_graph = true});
    overlap["second_backward_error"] = outcome([&] { backward(y, {.retain_graph = true}); });
    overlap["runs"] = runs;
  }
  overlap["backward_after_the_group_error"] = outcome([&] { backward(y); });
  seen.add("N16.overlap", overlap);
  const auto group_in = [](bool outer) {
    return outcome([=] {
      const MaybeGroup around(outer);
      const BackwardGroup group;
    });
  };
  json nested{{"nested_error", group_in(true)}};
  nested["afterwards_error"] = group_in(false);
  seen.add("N16.groups_in_groups", nested);
}

RULE("N16", "a weight that changes between the backwards of a group is noticed") {
  Tensors gradients;
  std::string error;
  for (const bool grouped : {false, true}) {
    const Tensor x = variable({0.5});
    Tensor w = variable({2});
    const Function body = [&](const Tensors& in) -> Tensors {
      return {tanh(mul(in[0], w)), sigmoid(mul(in[0], w))};
    };
    CheckpointOptions unchecked;
    // So that the run without a group recomputes with the new weight, as PyTorch does.
    unchecked.determinism = DeterminismCheck::none;
    const Tensors y = checkpoint(body, {x}, unchecked);
    const MaybeGroup scope(grouped);
    backward(sum(y[0]), {.retain_graph = true});
    {
      const GradMode off(false);
      scale_(w, 2);
    }
    error = outcome([&] { backward(sum(y[1])); });
    gradients.push_back(x.grad());
  }
  seen.add("N16.weights_changed_in_a_group",
           {{"same_as_without_a_group", error == "no error"
                                            ? json(testing::same_bits(gradients[0], gradients[1]))
                                            : json("error: " + error)}});
}

RULE("N16", "unused recomputed tensors of a group die with the group") {
  Storages recomputed;
  bool recomputing = false;
  const Function body = [&](const Tensors& in) -> Tensors {
    const Tensor a = tanh(in[0]);
    const Tensor b = sigmoid(in[0]);
    if (recomputing) recomputed = {a.storage(), b.storage()};
    return {a, b};
  };
  const Tensors y = checkpoint(body, {variable({0.5})}, without_early_stop());
  recomputing = true;
  json facts{{"graph_alive", y[1].defined()}};
  {
    const BackwardGroup group;
    backward(sum(y[0]));
    facts["alive_in_the_group"] = alive(recomputed);
  }
  facts["alive_after_the_group"] = alive(recomputed);
  seen.add("N16.leftovers", facts);
}

}  // namespace rematch::golden
