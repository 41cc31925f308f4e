// The non-reentrant variant: what is saved, when it is recomputed, and where a recomputation stops.
#include <map>
#include <set>
#include <thread>

#include "engine/autograd/autocast.h"
#include "engine/checkpoint/early_stop.h"
#include "engine/ops/activation.h"
#include "engine/ops/arithmetic.h"
#include "engine/ops/dropout.h"
#include "engine/ops/noise.h"
#include "golden/semantics/testing/observer.h"
#include "golden/semantics/testing/rules.h"
#include "golden/semantics/testing/situations.h"

namespace rematch::golden {
namespace {

using nlohmann::json;

Function two_tanh_of_product(const Tensor& w) {
  return of_one([w](const Tensor& x) { return tanh(tanh(mul(x, w))); });
}

const Function kTanhThenSigmoid = [](const Tensors& in) -> Tensors {
  return {tanh(in[0]), sigmoid(in[0])};
};

using Scopes = std::vector<std::optional<bool>>;

/// Calls `action` inside scopes that decide early stop, the first outermost.
void inside(const Scopes& scopes, const std::function<void()>& action, std::size_t at = 0) {
  if (at == scopes.size()) return action();
  const EarlyStop scope(scopes[at]);
  inside(scopes, action, at + 1);
}

/// Runs of what comes after the last saved tensor: 1 when the recomputation stopped early.
int tail_runs(bool option, const Scopes& in_forward = {}, const Scopes& in_backward = {}) {
  int tail = 0;
  CheckpointOptions options;
  options.early_stop = option;
  Tensor y;
  inside(in_forward, [&] {
    y = non_reentrant(of_one([&](const Tensor& x) {
                        const Tensor h = tanh(x);
                        ++tail;
                        return scale(h, 1);
                      }),
                      {variable({0.5})}, options);
  });
  inside(in_backward, [&] { backward(sum(y)); });
  return tail;
}

/// How often a function is entered and left, and kernels that its recomputation runs.
json kernels(const Unary& f) {
  int entered = 0;
  int left = 0;
  const Tensor y = non_reentrant(of_one([&](const Tensor& x) {
                                   ++entered;
                                   Tensor result = f(x);
                                   ++left;
                                   return result;
                                 }),
                                 {variable({0.5})});
  const Observer recomputation;
  backward(y);
  return {{"entered", entered},
          {"left", left},
          {"kernel_runs_in_recomputation", recomputation.kernels.size()}};
}

Tensors rrelu_gradient(const Call& call, bool then_tanh) {
  ambient().streams = Streams(7);
  const Tensor x = Tensor::full({64}, DType::float64, -1, Tag::inputs).set_requires_grad(true);
  const Function body = of_one([&](const Tensor& in) {
    const Tensor y = rrelu(in, 0.25, 0.5);
    return then_tanh ? tanh(y) : y;
  });
  backward(sum(call(body, {x})[0]));
  return {x.grad()};
}

}  // namespace

RULE("N1", "what a non-reentrant checkpoint saves is hidden from the hooks around it") {
  const Tensor x = variable({0.5});
  const Tensor w = variable({2});
  json facts;
  {
    const HookCounter hooks;
    two_tanh_of_product(w)({x});
    facts["plain_packs"] = hooks.packs;
  }
  Tensor y;
  HookCounter hooks;
  y = non_reentrant(two_tanh_of_product(w), {x});
  facts["checkpointed_packs"] = hooks.packs;
  {
    const HookScope outside(nullptr);
    backward(sum(y));
  }
  facts["checkpointed_unpacks"] = hooks.unpacks;
  seen.add("N1.hidden", facts);

  const Function body = [](const Tensors& in) -> Tensors { return {mul(tanh(in[0]), in[1])}; };
  const int before = hooks.packs;
  non_reentrant(body, {x, constant({2})});
  seen.add("N1.two_inputs", {{"packs", hooks.packs - before}});
}

RULE("N2", "one backward recomputes a non-reentrant checkpoint once, however much of it it uses") {
  {
    int runs = 0;
    backward(
        sum(non_reentrant(counted(runs, two_tanh_of_product(variable({2}))), {variable({0.5})})));
    seen.add("N2.one_recomputation", {{"runs", runs}});
  }
  json facts;
  for (const bool together : {true, false}) {
    int runs = 0;
    const Tensors y = Call(Way::non_reentrant)(counted(runs, kTanhThenSigmoid), {variable({0.5})});
    if (together) {
      backward(sum(add(y[0], y[1])));
    } else {
      backward(sum(y[0]));
      backward(sum(y[1]));
    }
    facts[together ? "one_backward_runs" : "two_backwards_runs"] = runs;
  }
  seen.add("N2.two_outputs", facts);
}

namespace {

/// Three forwards of two segments that share a weight, the second within the first or behind it,
/// and one backward: the gradients, and the masks of each run of a segment, by its name and the
/// forward. Small whole numbers make sums exact in every order.
struct OneBackward {
  Tensors gradients;
  std::map<std::string, std::vector<std::vector<double>>> masks;
};

OneBackward one_backward(const Call& call, bool nests) {
  ambient().streams.seed(5);
  OneBackward seen;
  const Tensor weight = variable({2, -1, 3});
  const auto masked = [&](const Tensor& x, const std::string& name) {
    const Tensor mask = dropout(constant({1, 1, 1}), 0.5);
    seen.masks[name].push_back(mask.to_vector());
    return mul(mul(x, weight), mask);
  };
  const auto run = [&](const Tensor& x, int forward) {
    const std::string suffix = std::to_string(forward);
    const Function second =
        of_one([&masked, suffix](const Tensor& in) { return masked(in, "second " + suffix); });
    const Function first = of_one([&masked, &call, second, nests, suffix](const Tensor& in) {
      const Tensor out = masked(in, "first " + suffix);
      return nests ? call(second, {out})[0] : out;
    });
    const Tensor y = call(first, {x})[0];
    return nests ? y : call(second, {y})[0];
  };
  const Tensors inputs = {variable({1, 2, 3}), variable({-2, 1, 5}), variable({4, -3, 2})};
  Tensor total;
  for (int i = 0; i < 3; ++i) {
    const Tensor y = run(inputs[static_cast<std::size_t>(i)], i);
    const Tensor loss = sum(mul(y, y));
    total = total.defined() ? add(total, loss) : loss;
  }
  backward(total);
  seen.gradients = {weight.grad(), inputs[0].grad(), inputs[1].grad(), inputs[2].grad()};
  return seen;
}

}  // namespace

RULE("N2", "one backward over several forwards recomputes each, which draws what it drew") {
  json facts;
  const std::pair<std::string, Call> calls[] = {
      {"reentrant", Call(Way::reentrant)},
      {"non_reentrant", Call(Way::non_reentrant)},
      {"without_early_stop", Call(Way::non_reentrant, without_early_stop())}};
  for (const auto& [name, call] : calls) {
    for (const bool nests : {false, true}) {
      const OneBackward plain = one_backward(Call(Way::plain), nests);
      const OneBackward found = one_backward(call, nests);
      std::set<std::size_t> first;
      std::set<std::size_t> second;
      bool alike = true;
      for (const auto& [segment, masks] : found.masks) {
        (segment.starts_with("first") ? first : second).insert(masks.size());
        for (const auto& mask : masks) alike = alike && mask == plain.masks.at(segment)[0];
      }
      const std::string verdict = judged([&] { return found.gradients; }, plain.gradients);
      facts[name + (nests ? "_nested" : "_in_a_row")] = {verdict, first, second, alike};
    }
  }
  seen.add("N2.several_forwards", facts);
}

RULE("N2", "each further backward over a retained graph recomputes once more") {
  int runs = 0;
  const Tensor y = sum(non_reentrant(counted_one(runs, tanh), {variable({0.5})}));
  json counts;
  for (int i = 0; i < 3; ++i) {
    backward(y, {.retain_graph = true});
    counts.push_back(runs);
  }
  seen.add("N2.retain_graph", {{"runs", counts}});

  int freed_runs = 0;
  const Tensor freed = sum(non_reentrant(counted_one(freed_runs, tanh), {variable({0.5})}));
  backward(freed);
  const std::string error = outcome([&] { backward(freed); });
  seen.add("N2.walked_twice", {{"second_backward_error", error}, {"runs", freed_runs}});
}

RULE("N3", "a recomputation stops at the last saved tensor, unless early stop is off") {
  seen.add("N3.stop", {{"with_early_stop", tail_runs(true)}, {"without", tail_runs(false)}});
  int runs = 0;
  const Function doubled = counted_one(runs, [](const Tensor& x) { return add(x, x); });
  backward(sum(non_reentrant(doubled, {variable({0.5})})));
  seen.add("N3.nothing_saved", {{"runs", runs}});
}

RULE("N3", "scopes decide early stop over the option, the innermost first, in the forward only") {
  seen.add("N3.precedence",
           {{"option_off_scope_on", tail_runs(false, {true})},
            {"option_on_scope_off", tail_runs(true, {false})},
            {"scope_off_around_scope_on", tail_runs(false, {false, true})},
            {"scope_on_around_scope_off", tail_runs(true, {true, false})},
            {"scope_off_in_backward_only", tail_runs(true, {}, {false})},
            {"scope_on_in_backward_only", tail_runs(false, {}, {true})},
            {"option_off_scope_on_then_off_in_backward", tail_runs(false, {true}, {false})}});
  seen.add("N3.scope_without_choice", {{"option_on", tail_runs(true, {false, std::nullopt})},
                                       {"option_off", tail_runs(false, {true, std::nullopt})}});
  try {
    const EarlyStop off(false);
    throw std::domain_error("left");
  } catch (const std::domain_error&) {
    seen.add("N3.scope_after_an_exception", {{"tail_runs", tail_runs(true)}});
  }
}

RULE(
    "N3",
    "the op that saves the last tensor has run before early stop, since ops save after computing") {
  seen.add("N3.input_saved", kernels(gelu));
  seen.add("N3.output_saved", kernels(tanh));
  seen.add("N3.two_ops", kernels([](const Tensor& x) { return gelu(gelu(x)); }));
  const Tensor w = variable({3});
  seen.add("N3.weights_after", kernels([&](const Tensor& x) { return mul(tanh(x), w); }));
}

RULE("N4", "saved noise is the noise that was drawn, even where the recomputation stops at it") {
  const Tensors plain = rrelu_gradient(Call(Way::plain), false);
  const auto verdict = [&](const Call& call) {
    return judged([&] { return rrelu_gradient(call, false); }, plain);
  };
  seen.add("N4.save_then_fill",
           {{"reentrant", verdict(Call(Way::reentrant))},
            {"with_early_stop", verdict(Call(Way::non_reentrant))},
            {"without", verdict(Call(Way::non_reentrant, without_early_stop()))}});
  const Tensors followed = rrelu_gradient(Call(Way::plain), true);
  seen.add("N4.followed",
           {{"with_early_stop",
             judged([] { return rrelu_gradient(Call(Way::non_reentrant), true); }, followed)}});
}

RULE("N19", "unused outputs, integer outputs and a tensor given twice change nothing") {
  seen.add("N19.unused_output", verdicts([](const Call& call, bool) -> Tensors {
             const Tensor x = variable({0.5, -1});
             const Tensor w = variable({2, 3});
             const Function body = [&](const Tensors& in) -> Tensors {
               return {tanh(mul(in[0], w)), sigmoid(in[0])};
             };
             backward(sum(call(body, {x})[0]));
             return {x.grad(), w.grad()};
           }));
  seen.add("N19.integer_output", verdicts([](const Call& call, bool) -> Tensors {
             const Tensor x = variable({0.5, -1});
             const Function body = [](const Tensors& in) -> Tensors {
               return {tanh(in[0]), Tensor::full({2}, DType::int32, 3)};
             };
             const Tensors y = call(body, {x});
             backward(sum(y[0]));
             return {x.grad(), y[1]};
           }));
  seen.add("N19.same_tensor_twice", verdicts([](const Call& call, bool) -> Tensors {
             const Tensor x = variable({0.5, -1});
             const Function body = [](const Tensors& in) -> Tensors {
               return {mul(tanh(in[0]), in[1])};
             };
             backward(sum(call(body, {x, x})[0]));
             return {x.grad()};
           }));
}

RULE("N19", "a weight used in and outside of a non-reentrant checkpoint fires its hooks once") {
  json firings;
  for (const Way way : {Way::plain, Way::reentrant, Way::non_reentrant}) {
    Tensor w = variable({1.5});
    int count = 0;
    w.register_hook([&](const Tensor&) {
      ++count;
      return Tensor();
    });
    const Function body = of_one([&](const Tensor& h) { return tanh(mul(h, w)); });
    backward(sum(mul(Call(way)(body, {variable({0.5})})[0], w)));
    firings[to_string(way)] = count;
  }
  seen.add("N19.weight_inside_and_outside", firings);
}

RULE("N20", "recomputations run on the thread that called backward") {
  json facts;
  for (const Way way : kVariants) {
    std::vector<std::thread::id> threads;
    const Function body = of_one([&](const Tensor& x) {
      threads.push_back(std::this_thread::get_id());
      return tanh(x);
    });
    backward(sum(Call(way)(body, {variable({0.5})})[0]));
    facts[to_string(way) + "_recomputes_on_the_callers_thread"] = threads[0] == threads[1];
  }
  seen.add("N20.thread", facts);
}

RULE("N20", "a backward on another thread finds the autocast and the draws of the forward") {
  json facts;
  for (const Way way : kVariants) {
    std::vector<std::pair<bool, std::vector<double>>> found;
    const Function body = of_one([&](const Tensor& x) {
      const Tensor mask = dropout(constant({1, 1, 1}), 0.5);
      found.emplace_back(ambient().autocast.enabled, mask.to_vector());
      return tanh(x);
    });
    const Tensor x = variable({0.5});
    Tensor y;
    {
      const AutocastScope autocast;
      y = Call(way)(body, {x})[0];
    }
    std::thread([&] { backward(sum(y)); }).join();
    facts[to_string(way)] = {found.size(), found.front() == found.back(), x.grad().defined()};
  }
  seen.add("N20.other_thread", facts);
}

}  // namespace rematch::golden
