// The reentrant variant: a node of its own that recomputes and differentiates.
#include "engine/autograd/node.h"
#include "engine/ops/activation.h"
#include "engine/ops/arithmetic.h"
#include "golden/semantics/testing/rules.h"
#include "golden/semantics/testing/situations.h"

namespace rematch::golden {
namespace {

using nlohmann::json;

/// ["frozen"] when `action` counted one frozen checkpoint.
json warnings_of(const std::function<void()>& action) {
  const std::int64_t before = frozen_checkpoint_warnings();
  action();
  json seen = json::array();
  for (std::int64_t i = before; i < frozen_checkpoint_warnings(); ++i) seen.push_back("frozen");
  return seen;
}

Function times_tanh(const Tensor& w) {
  return of_one([w](const Tensor& x) { return tanh(mul(x, w)); });
}

json partial_backward(const std::function<void(const Tensor&, const Tensor&)>& how) {
  int runs = 0;
  const Tensor x = variable({0.5});
  const Tensor loss = reentrant(counted_one(runs, tanh), {x});
  const std::string error = outcome([&] { how(loss, x); });
  json facts{{"error", error}, {"runs", runs}, {"gradient_left", x.grad().defined()}};
  facts["backward_of_the_same_graph_error"] = outcome([&] { backward(loss); });
  const Tensor later = variable({0.5});
  facts["later_backward_error"] = outcome([&] { backward(sum(reentrant(of_one(tanh), {later}))); });
  facts["later_gradient_left"] = later.grad().defined();
  return facts;
}

}  // namespace

RULE("RE1", "the forward of the reentrant variant leaves one node, which saves the inputs") {
  const Tensor x = variable({0.5, 2});
  const Tensor w = variable({3, -1});
  json modes;
  Tensor y;
  HookCounter hooks;
  y = reentrant(of_one([&](const Tensor& in) {
                  modes.push_back(ambient().grad_enabled);
                  return tanh(mul(in, w));
                }),
                {x});
  int edges = 0;
  int to_leaves = 0;
  for (const Edge& edge : y.grad_fn()->edges) {
    if (!edge.node) continue;
    ++edges;
    to_leaves += dynamic_cast<const AccumulateGrad*>(edge.node.get()) != nullptr;
  }
  const int packs = hooks.packs;
  {
    const HookScope outside(nullptr);
    backward(sum(y));
  }
  seen.add("RE1.forward", {{"edges", edges},
                           {"edges_to_leaves", to_leaves},
                           {"surrounding_packs", packs},
                           {"surrounding_unpacks", hooks.unpacks},
                           {"recording_in_forward_and_recomputation", modes}});
}

RULE("RE2", "the reentrant variant refuses partial backwards, and later backwards work") {
  seen.add("RE2.grad", partial_backward([](const Tensor& loss, const Tensor& x) {
             grad(std::span(&loss, 1), std::span(&x, 1));
           }));
  seen.add("RE2.inputs", partial_backward([](const Tensor& loss, const Tensor& x) {
             backward(loss, {.inputs = {x}});
           }));
}

RULE("RE3", "a reentrant recomputation runs the whole function on inputs that have become leaves") {
  struct Input {
    bool leaf;
    bool requires_grad;
    bool frozen_requires_grad;
    std::byte* memory;
  };
  std::vector<Input> inputs;
  int tail = 0;
  const Tensor x = variable({0.5});
  const Tensor w = variable({3});
  const Function body = [&](const Tensors& in) -> Tensors {
    inputs.push_back({in[0].is_leaf(), in[0].requires_grad(), in[1].requires_grad(), in[0].raw()});
    const Tensor y = add(tanh(mul(in[0], w)), in[1]);
    ++tail;
    return {scale(y, 1)};
  };
  backward(sum(reentrant(body, {scale(x, 2), constant({1})})));
  seen.add("RE3.recomputation",
           {{"forward_input_is_leaf", inputs[0].leaf},
            {"recomputation_input_is_leaf", inputs[1].leaf},
            {"recomputation_inputs_require_grad",
             {inputs[1].requires_grad, inputs[1].frozen_requires_grad}},
            {"recomputation_input_shares_memory", inputs[0].memory == inputs[1].memory},
            {"runs_after_the_last_saved", tail},
            {"parameter_gradient_left", w.grad().defined()}});
}

RULE("RE4", "a reentrant checkpoint whose inputs are frozen freezes its weights, with a warning") {
  {
    const Tensor w = variable({2});
    Tensor y;
    const json warnings = warnings_of([&] { y = reentrant(times_tanh(w), {constant({0.5})}); });
    seen.add("RE4.frozen_input", {{"warnings", warnings},
                                  {"output_requires_grad", y.requires_grad()},
                                  {"backward_error", outcome([&] { backward(sum(y)); })},
                                  {"weight_has_gradient", w.grad().defined()}});
  }
  {
    const Tensor w = variable({2});
    const Tensor v = variable({3});
    backward(sum(mul(reentrant(times_tanh(w), {constant({0.5})}), v)));
    seen.add("RE4.trainable_after", {{"inner_has_gradient", w.grad().defined()},
                                     {"outer_has_gradient", v.grad().defined()}});
  }
  {
    for (const std::size_t trains : {0, 1}) {
      const Tensor w = variable({2});
      const Function body = [&](const Tensors& in) -> Tensors {
        return {mul(tanh(mul(in[trains], w)), in[1 - trains])};
      };
      Tensors inputs(2, constant({0.5}));
      inputs[trains] = variable({0.5});
      Tensor y;
      const json warnings = warnings_of([&] { y = reentrant(body, inputs); });
      backward(sum(y));
      seen.add(trains == 0 ? "RE4.one_input_trains" : "RE4.the_other_trains",
               {{"warnings", warnings}, {"weight_has_gradient", w.grad().defined()}});
    }
  }
  {
    Tensor y;
    const json warnings = warnings_of([&] { y = reentrant(of_one(tanh), {constant({0.5})}); });
    seen.add("RE4.nothing_trains",
             {{"warnings", warnings}, {"output_requires_grad", y.requires_grad()}});
  }
}

RULE("RE4", "a non-reentrant checkpoint trains its weights even when its inputs are frozen") {
  const Tensor w = variable({2});
  Tensor y;
  const json warnings = warnings_of([&] { y = non_reentrant(times_tanh(w), {constant({0.5})}); });
  const bool requires_grad = y.requires_grad();
  backward(sum(y));
  seen.add("RE4.non_reentrant", {{"warnings", warnings},
                                 {"output_requires_grad", requires_grad},
                                 {"weight_has_gradient", w.grad().defined()}});
}

RULE("RE5",
     "every floating-point output of a reentrant checkpoint requires grad, even a detached one") {
  const Function body = [](const Tensors& in) -> Tensors {
    return {scale(in[0], 2), in[0].detach(), Tensor::zeros({2}, DType::int32)};
  };
  json outputs;
  for (const Way way : {Way::plain, Way::reentrant, Way::non_reentrant}) {
    for (const Tensor& t : Call(way)(body, {variable({0.5, -1})})) {
      outputs[to_string(way)].push_back(t.requires_grad());
    }
  }
  seen.add("RE5.outputs", outputs);

  const Function all_detached = of_one([](const Tensor& x) { return tanh(x).detach(); });
  const Tensor y = reentrant(all_detached, {variable({0.5})});
  const Tensor z = non_reentrant(all_detached, {variable({0.5})});
  seen.add("RE5.all_detached",
           {{"reentrant_requires_grad", y.requires_grad()},
            {"reentrant_backward_error", outcome([&] { backward(sum(y)); })},
            {"non_reentrant_requires_grad", z.requires_grad()},
            {"non_reentrant_backward_error", outcome([&] { backward(sum(z)); })}});

  const Tensor x = variable({0.5});
  const Function one_detached = [](const Tensors& in) -> Tensors {
    return {tanh(in[0]), sigmoid(in[0]).detach()};
  };
  const Tensor detached = Call(Way::reentrant)(one_detached, {x})[1];
  const std::string error = outcome([&] { backward(sum(detached)); });
  seen.add("RE5.only_detached_used",
           {{"backward_error", error},
            {"gradient_is_zero", x.grad().defined() && x.grad().item() == 0}});
}

RULE("RE8", "a weight's hooks fire once more for each reentrant checkpoint that uses it") {
  json firings;
  for (const Way way : {Way::plain, Way::reentrant, Way::non_reentrant}) {
    for (int uses = 1; uses <= 4; ++uses) {
      Tensor w = variable({1.5});
      int count = 0;
      w.register_hook([&](const Tensor&) {
        ++count;
        return Tensor();
      });
      Tensor h = variable({0.5});
      for (int i = 0; i < uses; ++i) h = Call(way)(times_tanh(w), {h})[0];
      backward(sum(h));
      firings[to_string(way)].push_back(count);
    }
  }
  seen.add("RE8.tensor_hook", firings);
}

RULE("RE9", "an input of a reentrant checkpoint that changes after the forward is noticed") {
  Tensor h = scale(variable({0.5}), 2);
  const Tensor y = sum(reentrant(of_one(tanh), {h}));
  scale_(h, 3);
  seen.add("RE9.input_changed", {{"backward_error", outcome([&] { backward(y); })}});
}

RULE("RE10", "a function that changes an input in place is refused by the reentrant variant") {
  const Function body = [](const Tensors& in) -> Tensors {
    Tensor m = in[1];
    scale_(m, 3);
    return {sum(mul(m, in[0]))};
  };
  json trains;
  for (const Way way : {Way::plain, Way::reentrant}) {
    const Tensor h = variable({2});
    Tensor y;
    const std::string forward = outcome([&] { y = Call(way)(body, {h, scale(h, 1)})[0]; });
    trains[to_string(way) + "_forward_error"] = forward;
    trains[to_string(way) + "_backward_error"] =
        y.defined() ? outcome([&] { backward(y); }) : forward;
  }
  seen.add("RE10.changes_an_argument_that_trains", trains);

  json constants;
  for (const Way way : {Way::plain, Way::reentrant}) {
    const Tensor h = variable({2});
    const std::string error = outcome([&] { backward(Call(way)(body, {h, constant({5})})[0]); });
    constants[to_string(way) + "_gradient"] =
        error == "no error" ? json(h.grad().item()) : json("error: " + error);
  }
  seen.add("RE10.changes_a_constant_argument", constants);
}

RULE("RE11",
     "a returned input is the same tensor in the non-reentrant variant, a new one in the "
     "reentrant") {
  json facts;
  for (const Way way : kVariants) {
    const Tensor h = scale(variable({0.5}), 2);
    const Tensor y = Call(way)(of_one([](const Tensor& t) { return t; }), {h})[0];
    facts[to_string(way) + "_same_object"] = is_same(y, h);
    facts[to_string(way) + "_same_memory"] = y.raw() == h.raw();
    facts[to_string(way) + "_same_maker"] = y.grad_fn() == h.grad_fn();
  }
  seen.add("RE11.identity", facts);
}

RULE("RE12", "each backward over a reentrant checkpoint recomputes it once") {
  int runs = 0;
  const Tensor y = sum(reentrant(counted_one(runs, tanh), {variable({0.5})}));
  json counts;
  for (int i = 0; i < 3; ++i) {
    backward(y, {.retain_graph = true});
    counts.push_back(runs);
  }
  seen.add("RE12.retain_graph", {{"runs", counts}});

  const Tensor freed = sum(reentrant(of_one(tanh), {variable({0.5})}));
  backward(freed);
  seen.add("RE12.walked_twice", {{"second_backward_error", outcome([&] { backward(freed); })}});
}

RULE("RE12", "a reentrant nesting of depth d runs its innermost function d + 1 times") {
  json leaf_runs;
  for (int depth = 1; depth <= 5; ++depth) {
    int runs = 0;
    Function body = counted_one(runs, tanh);
    for (int i = 1; i < depth; ++i) {
      body = of_one([inner = body](const Tensor& x) { return reentrant(inner, {x}); });
    }
    backward(sum(reentrant(body, {variable({0.5})})));
    leaf_runs.push_back(runs);
  }
  seen.add("RE12.nesting", {{"leaf_runs", leaf_runs}});
}

RULE("RE7", "the reentrant variant ignores early stop") {
  json facts;
  for (const bool early_stop : {true, false}) {
    int tail = 0;
    CheckpointOptions options;
    options.early_stop = early_stop;
    const Function body = of_one([&](const Tensor& x) {
      Tensor y = tanh(x);
      ++tail;
      return y;
    });
    backward(sum(reentrant(body, {variable({0.5})}, options)));
    facts[early_stop ? "runs_after_the_last_saved_with_early_stop"
                     : "runs_after_the_last_saved_without"] = tail;
  }
  seen.add("RE7.ignored", facts);
}

}  // namespace rematch::golden
