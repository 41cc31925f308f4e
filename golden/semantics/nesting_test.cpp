// Checkpoints in checkpoints.
#include <regex>

#include "engine/checkpoint/early_stop.h"
#include "engine/ops/activation.h"
#include "engine/ops/arithmetic.h"
#include "engine/ops/dropout.h"
#include "golden/semantics/testing/rules.h"
#include "golden/semantics/testing/situations.h"

namespace rematch::golden {
namespace {

using nlohmann::json;

constexpr Way kR = Way::reentrant;
constexpr Way kN = Way::non_reentrant;

CheckpointOptions stopping(bool early_stop) {
  CheckpointOptions options;
  options.early_stop = early_stop;
  return options;
}

/// Runs of each level of a pure nesting, outermost first; the innermost is a tanh.
std::vector<int> level_runs(const std::vector<Way>& ways, bool early_stop = true) {
  std::vector<int> runs(ways.size());
  Function body = counted_one(runs.back(), tanh);
  for (std::size_t level = ways.size() - 1; level > 0; --level) {
    const Call call(ways[level], stopping(early_stop));
    body = counted(runs[level - 1],
                   [call, inner = body](const Tensors& in) -> Tensors { return call(inner, in); });
  }
  backward(sum(Call(ways[0], stopping(early_stop))(body, {variable({0.5})})[0]));
  return runs;
}

/// Runs of an outer function and of two checkpoints in it, one after the other.
std::vector<int> siblings(bool early_stop, bool saves_before = false, bool saves_after = false) {
  std::vector<int> runs(3);
  const Call call(kN, stopping(early_stop));
  const Function first = counted_one(runs[1], tanh);
  const Function second = counted_one(runs[2], tanh);
  const Function outer = counted(runs[0], [&](const Tensors& in) -> Tensors {
    Tensors x{saves_before ? tanh(in[0]) : in[0]};
    x = call(second, call(first, x));
    return {saves_after ? tanh(x[0]) : x[0]};
  });
  backward(sum(call(outer, {variable({0.5})})[0]));
  return runs;
}

}  // namespace

RULE("N13",
     "a nesting of depth d runs its innermost function twice, without early stop d + 1 times") {
  for (std::size_t depth = 1; depth <= 5; ++depth) {
    const std::vector<Way> ways(depth, kN);
    const std::vector<int> stopped = level_runs(ways);
    const std::vector<int> whole = level_runs(ways, false);
    seen.add("N13.depth" + std::to_string(depth), {{"leaf_runs_with_early_stop", stopped.back()},
                                                   {"leaf_runs_without", whole.back()},
                                                   {"level_runs_with_early_stop", stopped},
                                                   {"level_runs_without", whole}});
  }
}

RULE("N13",
     "sibling checkpoints in a checkpoint run as often as the tensors saved around them require") {
  seen.add("N13.siblings", {{"with_early_stop", siblings(true)}, {"without", siblings(false)}});
  seen.add("N13.siblings_after_an_op",
           {{"with_early_stop", siblings(true, true)}, {"without", siblings(false, true)}});
  seen.add("N13.siblings_before_an_op", {{"with_early_stop", siblings(true, false, true)},
                                         {"without", siblings(false, false, true)}});
}

RULE("N13", "variants may be nested in each other") {
  seen.add("N13.mixed", {{"reentrant_around_non_reentrant", level_runs({kR, kN})},
                         {"non_reentrant_around_reentrant", level_runs({kN, kR})},
                         {"reentrant_twice_around_non_reentrant", level_runs({kR, kR, kN})},
                         {"non_reentrant_twice_around_reentrant", level_runs({kN, kN, kR})},
                         {"alternating_from_reentrant", level_runs({kR, kN, kR})},
                         {"alternating_from_non_reentrant", level_runs({kN, kR, kN})}});
  seen.add("N13.mixed_without_early_stop",
           {{"reentrant_around_non_reentrant", level_runs({kR, kN}, false)},
            {"non_reentrant_around_reentrant", level_runs({kN, kR}, false)},
            {"alternating_from_reentrant", level_runs({kR, kN, kR}, false)},
            {"alternating_from_non_reentrant", level_runs({kN, kR, kN}, false)}});
}

RULE("N13", "a saved tensor belongs to the innermost checkpoint, its inputs to the one around it") {
  {
    const HookCounter hooks;
    const Function inner = of_one([](const Tensor& x) { return tanh(tanh(x)); });
    non_reentrant(of_one([&](const Tensor& x) { return tanh(non_reentrant(inner, {x})); }),
                  {variable({0.5})});
    seen.add("N13.belongs_to_the_innermost", {{"surrounding_packs", hooks.packs}});
  }
  Tensor w = variable({2});
  const Function inner = [](const Tensors& in) -> Tensors {
    return {tanh(add(tanh(in[0]), tanh(in[1])))};
  };
  const Function outer = of_one([&](const Tensor& x) {
    return mul(non_reentrant(inner, {tanh(x), x}), w);
  });
  const Tensor y = non_reentrant(outer, {variable({0.5})});
  w.set_requires_grad(false);
  json facts{{"saved_in_forward", 0}, {"saved_in_recomputation", 0}};
  try {
    backward(sum(y));
  } catch (const CheckpointError& error) {
    const std::string text = error.what();
    std::smatch found;
    if (std::regex_search(text, found,
                          std::regex("saved ([0-9]+) tensors, the forward ([0-9]+)"))) {
      facts = {{"saved_in_forward", std::stoi(found[2])},
               {"saved_in_recomputation", std::stoi(found[1])}};
    }
  }
  seen.add("N13.inputs_belong_to_the_parent", facts);
}

RULE("N13", "a recomputation begins as if no checkpoint and no hook were active") {
  const auto run = [](const Call& call, json& runs) -> Tensors {
    const Tensor x = variable({0.5, -1});
    const Tensor z = variable({2, 3});
    int other_runs = 0;
    int body_runs = 0;
    const Function other =
        counted_one(other_runs, [](const Tensor& in) { return tanh(sigmoid(in)); });
    const Tensor slope_of = call(other, {z})[0];
    const Function body = counted_one(body_runs, [&](const Tensor& in) {
      const Tensor loss = sum(slope_of);
      const Tensor slope = grad(std::span(&loss, 1), std::span(&z, 1), {}, true)[0];
      return mul(tanh(in), slope.detach());
    });
    backward(sum(call(body, {x})[0]));
    runs = {body_runs, other_runs};
    return {x.grad()};
  };
  json facts;
  json runs;
  const Tensors plain = run(Call(Way::plain), runs);
  for (const bool early_stop : {true, false}) {
    const std::string name = early_stop ? "with_early_stop" : "without";
    facts[name] = judged([&] { return run(Call(kN, stopping(early_stop)), runs); }, plain);
    facts["runs_" + name] = runs;
  }
  seen.add("N13.recomputation_inside_a_forward", facts);

  json packs;
  for (const Way way : kVariants) {
    const Function body = of_one([](const Tensor& x) { return tanh(tanh(x)); });
    const Tensor y = sum(Call(way)(body, {variable({0.5})})[0]);
    const HookCounter hooks;
    backward(y);
    packs[to_string(way) + "_packs"] = hooks.packs;
  }
  seen.add("N13.hooks_around_backward", packs);
}

RULE("N13", "each checkpoint has its own early stop") {
  int inner_tail = 0;
  int outer_tail = 0;
  const Function inner = of_one([&](const Tensor& x) {
    const Tensor y = tanh(x);
    ++inner_tail;
    return scale(y, 1);
  });
  const Function outer = of_one([&](const Tensor& x) {
    Tensor y;
    {
      const EarlyStop off(false);
      y = non_reentrant(inner, {tanh(x)});
    }
    y = tanh(y);
    ++outer_tail;
    return scale(y, 1);
  });
  backward(sum(non_reentrant(outer, {variable({0.5})})));
  seen.add("N13.scope_in_a_function",
           {{"inner_tail_runs", inner_tail}, {"outer_tail_runs", outer_tail}});

  std::vector<int> runs(3);
  const Function leaf = counted_one(runs[2], tanh);
  const Function middle =
      counted_one(runs[1], [&](const Tensor& x) { return non_reentrant(leaf, {x}); });
  const Function top =
      counted_one(runs[0], [&](const Tensor& x) { return non_reentrant(middle, {x}); });
  Tensor y;
  {
    const EarlyStop off(false);
    y = non_reentrant(top, {variable({0.5})});
  }
  backward(sum(y));
  seen.add("N13.scope_around_a_nesting", {{"level_runs", runs}});
}

RULE("N13", "each backward recomputes only what it needs of two checkpoints in a checkpoint") {
  json facts;
  for (const bool early_stop : {true, false}) {
    std::vector<int> runs(3);
    const Call call(kN, stopping(early_stop));
    const Function first = counted_one(runs[1], tanh);
    const Function second = counted_one(runs[2], tanh);
    const Function outer = counted(runs[0], [&](const Tensors& in) -> Tensors {
      const Tensor a = call(first, in)[0];
      return {a, call(second, {a})[0]};
    });
    const Tensors y = call(outer, {variable({0.5})});
    const std::string name = early_stop ? "with_early_stop" : "without";
    backward(sum(y[0]), {.retain_graph = true});
    facts["after_the_first_" + name] = runs;
    backward(sum(y[1]));
    facts["after_both_" + name] = runs;
  }
  seen.add("N13.partly_needed", facts);
}

RULE("N13", "masks and random state are right in nestings") {
  seen.add("N13.random", gradient_and_state([](const Call& call) {
             const Tensor x = ramp({4, 8});
             const Function inner = of_one([](const Tensor& in) { return tanh(dropout(in, 0.5)); });
             const Function outer = of_one([&](const Tensor& in) {
               return dropout(call(inner, {dropout(in, 0.5)})[0], 0.5);
             });
             backward(sum(call(outer, {x})[0]));
             return x.grad();
           }));
}

}  // namespace rematch::golden
