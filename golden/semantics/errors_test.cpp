// Recomputations that differ from their forward, and functions that throw.
#include <regex>

#include "engine/ops/activation.h"
#include "engine/ops/arithmetic.h"
#include "engine/ops/dropout.h"
#include "engine/ops/join.h"
#include "engine/ops/view.h"
#include "engine/testing/values.h"
#include "golden/semantics/testing/rules.h"
#include "golden/semantics/testing/situations.h"

namespace rematch::golden {
namespace {

using nlohmann::json;
using testing::same_bits;

/// The first element of a vector of two.
Tensor first_of(const Tensor& x) { return reshape(split(reshape(x, {1, 2}), 1)[0], {1}); }

CheckpointOptions unchecked(CheckpointOptions options = {}) {
  options.determinism = DeterminismCheck::none;
  return options;
}

/// The error of a backward whose recomputation runs another function than the forward did.
std::string mismatch(const Unary& forward, const Unary& recomputation, const Call& call) {
  int runs = 0;
  const Function body =
      counted_one(runs, [&](const Tensor& x) { return runs == 1 ? forward(x) : recomputation(x); });
  const Tensor y = sum(call(body, {variable({0.5, 1})})[0]);
  return outcome([&] { backward(y); });
}

json by_options(const Unary& forward, const Unary& recomputation) {
  const auto with = [&](const CheckpointOptions& options) {
    return mismatch(forward, recomputation, Call(Way::non_reentrant, options));
  };
  return {{"with_early_stop", with({})},
          {"without", with(without_early_stop())},
          {"with_early_stop_unchecked", with(unchecked())},
          {"without_unchecked", with(unchecked(without_early_stop()))},
          {"reentrant", mismatch(forward, recomputation, Call(Way::reentrant))}};
}

bool hooks_left() { return ambient().hooks != nullptr; }

}  // namespace

RULE("N6", "a recomputation that saves other tensors than its forward is refused") {
  seen.add("N6.fewer", by_options(tanh_twice, tanh));
  seen.add("N6.more", by_options(tanh, tanh_twice));
  seen.add("N6.other_shape", by_options([](const Tensor& x) { return sum(tanh(x)); },
                                        [](const Tensor& x) { return sum(tanh(first_of(x))); }));
  // No op converts: the recomputation takes a constant of the other dtype.
  seen.add("N6.other_dtype", by_options(tanh, [](const Tensor&) {
             Tensor other = Tensor::ones({2}, DType::float32);
             return tanh(other.set_requires_grad(true));
           }));
}

RULE(
    "N6",
    "a recomputation that differs is refused even where nothing that it saves is needed any more") {
  int runs = 0;
  const Function body = counted(runs, [&](const Tensors& in) -> Tensors {
    return {tanh(in[0]), sigmoid(runs < 3 ? in[0] : first_of(in[0])), tanh(in[0])};
  });
  const Tensors y = checkpoint(body, {variable({0.5, 1})});
  backward(sum(y[1]));
  seen.add("N6.freed_holder", {{"later_backward_error", outcome([&] { backward(sum(y[2])); })}});
}

RULE("N6", "a recomputation that computes with other numbers is refused") {
  seen.add("N6.values", verdicts([](const Call& call, bool accident) -> Tensors {
             const Tensor x = variable({0.5, -1});
             int runs = 0;
             const Function body = counted_one(
                 runs, [&](const Tensor& in) { return tanh(scale(in, accident ? runs : 1)); });
             backward(sum(call(body, {x})[0]));
             return {x.grad()};
           }));
}

RULE("N1", "the first op that a recomputation runs on other shapes is named") {
  int runs = 0;
  const Function body = counted_one(runs, [&](const Tensor& x) {
    const Tensor a = tanh(tanh(x));
    return tanh(sum(tanh(runs == 1 ? a : Tensor::ones({1}, DType::float64))));
  });
  const Tensor y = non_reentrant(body, {variable({0.5, 1})});
  json facts{{"positions_named", json::array()}};
  try {
    backward(y);
  } catch (const CheckpointError& error) {
    const std::string text = error.what();
    std::smatch found;
    if (std::regex_search(text, found, std::regex("op ([0-9]+) was"))) {
      facts["positions_named"].push_back(std::stoi(found[1]));
    }
  }
  seen.add("N1.positions", facts);
}

RULE("N7", "without a check a node still never reads a tensor of another shape") {
  const auto gradient = [](bool differs, const CheckpointOptions& options) -> Tensors {
    const Tensor x = variable({0.5, 1});
    int runs = 0;
    const Function body = counted_one(runs, [&](const Tensor& in) {
      return sum(tanh(differs && runs > 1 ? reshape(in, {1, 2}) : in));
    });
    backward(non_reentrant(body, {x}, options));
    return {x.grad()};
  };
  const Tensors reference = gradient(false, {});
  seen.add("N7.none", {{"default", judged([&] { return gradient(true, {}); }, reference)},
                       {"none", judged([&] { return gradient(true, unchecked()); }, reference)}});
}

RULE("N7", "a function that differentiates inside is checked like any other") {
  const auto run = [](const CheckpointOptions& options) {
    int runs = 0;
    const Function body = counted_one(runs, [&](const Tensor& x) {
      const Tensor inner = sum(tanh(x));
      grad(std::span(&inner, 1), std::span(&x, 1));
      return sum(tanh(runs < 3 ? x : reshape(x, {1, 2})));
    });
    const Tensor y = non_reentrant(body, {variable({0.5, 1})}, options);
    return outcome([&] { backward(y); });
  };
  seen.add("N7.inner_gradient",
           {{"with_early_stop", run({})}, {"without", run(without_early_stop())}});
}

RULE("N18", "after a function threw, all state is restored and backward can be retried") {
  json in_recomputation;
  json in_forward;
  for (const Way way : kVariants) {
    const std::string name = to_string(way);
    int runs = 0;
    const Function fails_once = counted_one(runs, [&](const Tensor& x) {
      const Tensor y = tanh(dropout(x, 0.5));
      if (runs == 2) throw std::runtime_error("the function gave up");
      return tanh(y);
    });
    const Tensor y = sum(Call(way)(fails_once, {ramp({8})})[0]);
    const auto before = random_state();
    in_recomputation[name + "_error"] = outcome([&] { backward(y, {.retain_graph = true}); });
    in_recomputation[name + "_random_state_kept"] = random_state() == before;
    in_recomputation[name + "_recording"] = ambient().grad_enabled;
    in_recomputation[name + "_hooks_left"] = hooks_left();
    in_recomputation[name + "_second_attempt_error"] = outcome([&] { backward(y); });
    in_recomputation[name + "_runs"] = runs;

    const Function fails = of_one([](const Tensor& x) -> Tensor {
      dropout(x, 0.5);
      throw std::runtime_error("the function gave up");
    });
    const auto state = random_state();
    const Call call(way);
    in_forward[name + "_error"] = outcome([&] { call(fails, {variable({0.5, 1})}); });
    in_forward[name + "_random_state_put_back"] = random_state() == state;
    in_forward[name + "_recording"] = ambient().grad_enabled;
    in_forward[name + "_hooks_left"] = hooks_left();
  }
  seen.add("N18.throws_in_recomputation", in_recomputation);
  seen.add("N18.throws_in_forward", in_forward);
}

RULE("N18", "a recomputation that differed once leaves the next backward right") {
  const Tensor x = variable({0.5, 1});
  int runs = 0;
  const Function body =
      counted_one(runs, [&](const Tensor& in) { return tanh(runs != 2 ? in : first_of(in)); });
  const Tensor y = sum(non_reentrant(body, {x}));
  const std::string first = outcome([&] { backward(y, {.retain_graph = true}); });
  const std::string second = outcome([&] { backward(y); });
  const Tensor plain = variable({0.5, 1});
  backward(sum(tanh(plain)));
  seen.add("N18.mismatch_then_again", {{"first_error", first},
                                       {"second_error", second},
                                       {"gradient_right", same_bits(x.grad(), plain.grad())}});
}

}  // namespace rematch::golden
