// State that code depends on without being handed it: what a recomputation restores.
#include <random>

#include "engine/nn/layers.h"
#include "engine/ops/activation.h"
#include "engine/ops/arithmetic.h"
#include "engine/ops/dropout.h"
#include "engine/testing/values.h"
#include "golden/semantics/testing/observer.h"
#include "golden/semantics/testing/rules.h"
#include "golden/semantics/testing/situations.h"

namespace rematch::golden {
namespace {

using nlohmann::json;
using testing::same_bits;

Function dropout_tanh() {
  return of_one([](const Tensor& x) { return tanh(dropout(x, 0.5)); });
}

/// Gradient, whether backward kept the random state, and the next draw.
struct AmbientStep {
  Tensor gradient;
  bool kept = false;
  std::vector<std::vector<std::byte>> next;
};

AmbientStep step(const Call& call) {
  ambient().streams = Streams(7);
  const Tensor x = ramp({8, 8});
  const Tensor y = sum(call(dropout_tanh(), {x})[0]);
  const auto before = random_state();
  backward(y);
  const bool kept = random_state() == before;
  const Observer observer;
  dropout(ramp({4, 8}, false), 0.5);
  return {x.grad(), kept, observer.masks};
}

json steps(const CheckpointOptions& options) {
  const AmbientStep plain = step(Call(Way::plain));
  json facts;
  for (const Way way : kVariants) {
    const AmbientStep found = step(Call(way, options));
    facts[to_string(way) + "_gradient_right"] = same_bits(found.gradient, plain.gradient);
    facts[to_string(way) + "_state_kept_by_backward"] = found.kept;
    facts[to_string(way) + "_next_draw_right"] = found.next == plain.next;
  }
  return facts;
}

/// Where the recomputation of a region that draws begins, after `before_backward`.
json begins(const std::function<void()>& before_backward) {
  json facts;
  for (const Way way : kVariants) {
    std::vector<std::vector<Generator>> states;
    const Function body = of_one([&](const Tensor& x) {
      states.push_back(random_state());
      return tanh(dropout(x, 0.5));
    });
    dropout(ramp({3}, false), 0.5);
    const Tensor y = sum(Call(way)(body, {ramp({8})})[0]);
    dropout(ramp({5}, false), 0.5);
    before_backward();
    const auto left = random_state();
    backward(y);
    facts[to_string(way) + "_recomputation_begins_at_entry"] = states[0] == states[1];
    facts[to_string(way) + "_state_kept_by_backward"] = random_state() == left;
  }
  return facts;
}

/// Whose value of a state a recomputation sees, when `change` changes it between forward and
/// backward.
template <class Read, class Change>
std::string whose(Way way, const Read& read, const Change& change) {
  using Value = decltype(read());
  std::vector<Value> values;
  const Function body = of_one([&](const Tensor& x) {
    values.push_back(read());
    return tanh(x);
  });
  const Tensor y = sum(Call(way)(body, {variable({0.5})})[0]);
  change();
  backward(y);
  const Value now = read();
  if (values[0] == now) return "the same";
  return values[1] == values[0] ? "the forward's" : values[1] == now ? "the backward's" : "another";
}

}  // namespace

RULE("AM1",
     "a recomputation draws what its forward drew, and leaves the random state as it found it") {
  seen.add("AM1.dropout", steps({}));
  seen.add("AM1.state_at_entry", begins([] {}));
  seen.add("AM1.reseeded", begins([] { ambient().streams.seed(99); }));
  seen.add("AM1.several_regions", gradient_and_state([](const Call& call) {
             const Tensor x = ramp({4, 8});
             Tensors h{x};
             for (int i = 0; i < 3; ++i) h = call(dropout_tanh(), h);
             backward(sum(h[0]));
             return x.grad();
           }));
}

RULE("AM1",
     "without preserved random state a recomputation draws another mask and moves the state") {
  CheckpointOptions options;
  options.preserve_rng = false;
  seen.add("AM1.not_preserved", steps(options));
}

RULE("AM1", "the user's own random streams are preserved like the default one") {
  json facts;
  for (const Way way : kVariants) {
    const int stream = ambient().streams.add("the user's");
    std::vector<Generator> states;
    const Function body = of_one([&](const Tensor& x) {
      states.push_back(ambient().streams.at(stream));
      return tanh(dropout(x, 0.5, {.train = true, .stream = stream}));
    });
    const Tensor y = sum(Call(way)(body, {ramp({8})})[0]);
    const Generator left = ambient().streams.at(stream);
    backward(y);
    facts[to_string(way) + "_recomputation_begins_at_entry"] = states[0] == states[1];
    facts[to_string(way) + "_state_kept_by_backward"] = ambient().streams.at(stream) == left;
  }
  seen.add("AM1.own_generator", facts);
}

RULE("AM2", "a generator that the engine does not know is not preserved") {
  json facts;
  for (const Way way : kVariants) {
    std::minstd_rand generator(7);
    std::vector<std::uint64_t> draws;
    const Function body = of_one([&](const Tensor& x) {
      draws.push_back(generator());
      return tanh(x);
    });
    const Tensor y = sum(Call(way)(body, {variable({0.5})})[0]);
    const std::minstd_rand left = generator;
    backward(y);
    facts[to_string(way) + "_same_draw_in_recomputation"] = draws[0] == draws[1];
    facts[to_string(way) + "_state_kept_by_backward"] = generator == left;
  }
  seen.add("AM2.python_random", facts);
}

RULE("AM3", "a recomputation records, even when backward is called with recording off") {
  json facts;
  for (const Way way : kVariants) {
    std::vector<bool> modes;
    const Function body = of_one([&](const Tensor& x) {
      modes.push_back(ambient().grad_enabled);
      return tanh(x);
    });
    const Tensor y = sum(Call(way)(body, {variable({0.5})})[0]);
    const GradMode off(false);
    backward(y);
    facts[to_string(way) + "_modes"] = modes;
  }
  seen.add("AM3.grad_mode", facts);
}

RULE("AM6",
     "a recomputation sees training modes, globals and thread-locals as backward finds them") {
  json training;
  json globals;
  json thread_locals;
  static thread_local int local = 0;
  for (const Way way : kVariants) {
    for (const bool begin : {true, false}) {
      nn::Flatten model;
      model.set_training(begin);
      training[(begin ? "eval_between_" : "train_between_") + to_string(way)] = whose(
          way, [&] { return model.training(); }, [&] { model.set_training(!begin); });
    }
    int global = 1;
    globals[to_string(way)] = whose(
        way, [&] { return global; }, [&] { global = 2; });
    local = 1;
    thread_locals["thread_local_" + to_string(way)] = whose(
        way, [] { return local; }, [] { local = 0; });
  }
  seen.add("AM6.training", training);
  seen.add("AM6.global_variable", globals);
  seen.add("AM6.context_variable", thread_locals);
}

RULE("AM6", "hooks on saved tensors around a forward do not see its recomputation") {
  json facts;
  for (const Way way : kVariants) {
    HookCounter hooks;
    const Function body = of_one([](const Tensor& x) { return tanh(tanh(x)); });
    const Tensor y = Call(way)(body, {variable({0.5})})[0];
    const int packs = hooks.packs;
    {
      const HookScope outside(nullptr);
      backward(sum(y));
    }
    facts[to_string(way) + "_packs_in_forward"] = packs;
    facts[to_string(way) + "_packs_in_recomputation"] = hooks.packs - packs;
  }
  seen.add("AM6.saved_tensor_hooks", facts);
}

RULE("N17", "with recording off a checkpoint runs its function and nothing else") {
  class CountsCaptures final : public Mechanics {
   public:
    Streams capture_rng(const Ambient& state) const override {
      ++captures;
      return Mechanics::capture_rng(state);
    }
    mutable int captures = 0;
  };
  json facts;
  for (const Way way : kVariants) {
    const CountsCaptures mechanics;
    CheckpointOptions options;
    options.mechanics = &mechanics;
    int runs = 0;
    const GradMode off(false);
    const HookCounter hooks;
    const Tensor y = Call(way, options)(counted_one(runs, tanh), {variable({0.5})})[0];
    facts[to_string(way) + "_runs"] = runs;
    facts[to_string(way) + "_output_requires_grad"] = y.requires_grad();
    facts[to_string(way) + "_surrounding_packs"] = hooks.packs;
    facts[to_string(way) + "_random_state_read"] = mechanics.captures;
  }
  seen.add("N17.grad_disabled", facts);
  json inside;
  for (const Way way : kVariants) {
    int runs = 0;
    const Unary recorded = [](const Tensor& x) {
      const GradMode on(true);
      return tanh(x);
    };
    const GradMode off(false);
    const HookCounter hooks;
    const Tensor y = Call(way)(counted_one(runs, recorded), {variable({0.5})})[0];
    inside[to_string(way)] = {hooks.packs, runs, y.requires_grad()};
  }
  seen.add("N17.recording_inside", inside);
  int runs = 0;
  const Tensor y = non_reentrant(counted_one(runs, tanh), {constant({0.5})});
  seen.add("N17.nothing_requires_grad",
           {{"runs", runs}, {"output_requires_grad", y.requires_grad()}});
}

}  // namespace rematch::golden
