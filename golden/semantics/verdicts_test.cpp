// What users do between forward and backward: plain against both variants.
#include <random>

#include "engine/nn/layers.h"
#include "engine/nn/optimizer.h"
#include "engine/ops/activation.h"
#include "engine/ops/arithmetic.h"
#include "engine/ops/dropout.h"
#include "engine/ops/join.h"
#include "engine/ops/view.h"
#include "golden/semantics/testing/rules.h"
#include "golden/semantics/testing/situations.h"

namespace rematch::golden {
namespace {

using nlohmann::json;

/// In place, without recording.
void scale_quietly(Tensor t, double factor) {
  const GradMode off(false);
  scale_(t, factor);
}

json weight_changed(const std::function<void(Tensor&)>& change) {
  return verdicts([&](const Call& call, bool accident) -> Tensors {
    const Tensor x = variable({0.5, -1});
    Tensor w = variable({2, 3});
    const Function body = of_one([&](const Tensor& in) { return mul(tanh(mul(in, w)), w); });
    const Tensor y = sum(call(body, {x})[0]);
    if (accident) change(w);
    backward(y);
    return {x.grad(), w.grad()};
  });
}

json dropout_between(const Unary& after) {
  return verdicts([&](const Call& call, bool accident) -> Tensors {
    nn::RandomLayer model(nn::RandomKind::dropout, 0.5);
    const Tensor x = ramp({64});
    const Tensor y = sum(call(of_one([&](const Tensor& in) { return after(model(in)); }), {x})[0]);
    if (accident) model.set_training(false);
    backward(y);
    return {x.grad()};
  });
}

json flag_between(const Unary& on, const Unary& off) {
  return verdicts([&](const Call& call, bool accident) -> Tensors {
    bool flag = true;
    const Tensor x = variable({0.5, -1});
    const Tensor y =
        sum(call(of_one([&](const Tensor& in) { return flag ? on(in) : off(in); }), {x})[0]);
    if (accident) flag = false;
    backward(y);
    return {x.grad()};
  });
}

}  // namespace

RULE("N9", "an input that changes after the forward is noticed, even a captured one") {
  seen.add("N9.positional_changed", verdicts([](const Call& call, bool accident) -> Tensors {
             const Tensor x = variable({0.5, -1});
             const Tensor c = constant({2, 3});
             const Function body = [](const Tensors& in) -> Tensors {
               return {mul(tanh(in[0]), in[1])};
             };
             const Tensor y = sum(call(body, {x, c})[0]);
             if (accident) scale_quietly(c, 5);
             backward(y);
             return {x.grad()};
           }));
  seen.add("N9.captured_changed", verdicts([](const Call& call, bool accident) -> Tensors {
             const Tensor x = variable({0.5, -1});
             const Tensor c = constant({2, 3});
             const Function body = of_one([&](const Tensor& in) { return mul(tanh(in), c); });
             const Tensor y = sum(call(body, {x})[0]);
             if (accident) scale_quietly(c, 5);
             backward(y);
             return {x.grad()};
           }));
}

RULE("N9", "hooks around a checkpoint see its inputs, not what it captured") {
  const auto body = [](const Tensor& x, const Tensor& c) { return tanh(mul(x, c)); };
  json packs;
  json kept;
  for (const bool captured : {false, true}) {
    const Tensor x = variable({0.5});
    Tensor c = constant({2});
    const std::weak_ptr<Storage> storage = c.storage();
    const HookCounter hooks;
    Tensors y;
    if (captured) {
      y = checkpoint([body, x, c](const Tensors&) -> Tensors { return {body(x, c)}; }, {});
    } else {
      y = checkpoint([body](const Tensors& in) -> Tensors { return {body(in[0], in[1])}; }, {x, c});
    }
    c = Tensor();
    const std::string name = captured ? "captured" : "position";
    packs[name] = hooks.packs;
    kept[name] = !storage.expired();
  }
  seen.add("N9.hooks", packs);
  seen.add("N9.kept", kept);
}

RULE("N10", "a weight that changes between forward and backward is noticed") {
  seen.add("N10.weight_changed", weight_changed([](Tensor& w) { scale_quietly(w, 0.5); }));
  seen.add("N10.buffer_changed", verdicts([](const Call& call, bool accident) -> Tensors {
             const Tensor x = variable({0.5, -1});
             const Tensor factor = constant({2, 3});
             const Function body = of_one([&](const Tensor& in) { return tanh(mul(in, factor)); });
             const Tensor y = sum(call(body, {x})[0]);
             if (accident) scale_quietly(factor, 2);
             backward(y);
             return {x.grad()};
           }));
  seen.add("N10.optimizer_step", verdicts([](const Call& call, bool accident) -> Tensors {
             const Tensor x = variable({0.5, -1});
             Tensor w = variable({2, 3});
             const Function body =
                 of_one([&](const Tensor& in) { return mul(tanh(mul(in, w)), w); });
             const Tensor first = sum(call(body, {x})[0]);
             const Tensor second = sum(call(body, {scale(x, 2)})[0]);
             backward(first);
             if (accident) nn::Sgd({w}, 0.5).step();
             w.set_grad({});
             backward(second);
             return {w.grad()};
           }));
  seen.add("N10.weight_changed_in_backward",
           verdicts([](const Call& call, bool accident) -> Tensors {
             const Tensor x = variable({0.5, -1});
             const Tensor early = variable({2, 3});
             Tensor late = variable({5, 7});
             if (accident) {
               late.register_hook([&](const Tensor&) {
                 scale_quietly(early, 2);
                 return Tensor();
               });
             }
             const Function body =
                 of_one([&](const Tensor& in) { return mul(tanh(mul(in, early)), late); });
             backward(sum(call(body, {x})[0]));
             return {x.grad(), early.grad(), late.grad()};
           }));
}

RULE("N10", "a write that bypasses the version counter is not detected") {
  seen.add("N10.weight_data_changed", weight_changed([](Tensor& w) {
             double* values = w.data<double>();
             values[0] -= 1;
             values[1] -= 1;
           }));
}

RULE("N11", "a function that changes an argument in place is refused or noticed") {
  for (const bool trains : {true, false}) {
    seen.add(trains ? "N11.own_argument_changed" : "N11.own_constant_changed",
             verdicts([&](const Call& call, bool accident) -> Tensors {
               const Tensor x = variable({0.5, -1});
               const Tensor m = trains ? variable({2, 3}) : constant({2, 3});
               const Function body = [&](const Tensors& in) -> Tensors {
                 Tensor h = in[1];
                 h = accident ? scale_(h, 3) : scale(h, 3);
                 return {tanh(mul(in[0], h))};
               };
               backward(sum(call(body, {x, trains ? scale(m, 1) : m})[0]));
               if (trains) return {x.grad(), m.grad()};
               return {x.grad()};
             }));
  }
}

RULE("N12",
     "an output may be changed in place after a checkpoint, where a plain graph forbids it") {
  seen.add("N12.output_changed", verdicts([](const Call& call, bool accident) -> Tensors {
             const Tensor x = variable({0.5, -1});
             Tensor y = call(of_one(tanh), {x})[0];
             y = accident ? scale_(y, 2) : scale(y, 2);
             backward(sum(y));
             return {x.grad()};
           }));
}

RULE("V", "a training mode that is switched between forward and backward is noticed") {
  seen.add("V.eval_between_dropout", dropout_between([](const Tensor& x) { return x; }));
  seen.add("V.eval_between_dropout_then_tanh", dropout_between(tanh));
  seen.add("V.eval_between_batch_norm", verdicts([](const Call& call, bool accident) -> Tensors {
             nn::BatchNorm model(3, DType::float64);
             const Tensor x = ramp({5, 3});
             const Tensor y = call(model.function(), {x})[0];
             if (accident) model.set_training(false);
             backward(sum(mul(y, ramp({5, 3}, false))));
             return {x.grad()};
           }));
}

RULE("V", "running statistics are updated once a step") {
  const auto updates = [](const Call& call, bool op_after) {
    nn::BatchNorm model(3, DType::float64);
    const Tensor mean = model.buffers()[0];
    const std::uint32_t before = mean.version();
    const Function body = of_one([&](const Tensor& x) {
      const Tensor y = model(x);
      return op_after ? tanh(y) : y;
    });
    backward(sum(call(body, {ramp({5, 3})})[0]));
    return mean.version() - before;
  };
  seen.add("V.batch_norm_statistics",
           {{"plain", updates(Call(Way::plain), false)},
            {"reentrant", updates(Call(Way::reentrant), false)},
            {"non_reentrant", updates(Call(Way::non_reentrant), false)},
            {"non_reentrant_without_early_stop",
             updates(Call(Way::non_reentrant, without_early_stop()), false)},
            {"non_reentrant_with_an_op_after", updates(Call(Way::non_reentrant), true)}});
}

RULE("V", "a flag that leads to other ops in the recomputation is noticed") {
  seen.add("V.flag_same_shapes",
           flag_between(tanh, [](const Tensor& x) { return tanh(scale(x, 2)); }));
  seen.add("V.flag_other_shapes", flag_between([](const Tensor& x) { return sum(tanh(x)); },
                                               [](const Tensor& x) {
                                                 const Tensor row = reshape(x, {1, 2});
                                                 return sum(tanh(concat(row, row)));
                                               }));
  seen.add("V.flag_more_saved", flag_between(tanh, tanh_twice));
  seen.add("V.flag_fewer_saved", flag_between(tanh_twice, tanh));
}

RULE("V", "a branch taken by a generator that the engine does not know is noticed") {
  // The second draw goes the other way than the first.
  const auto crosses = [](std::uint32_t seed) {
    std::minstd_rand draws(seed);
    const bool first = draws() % 2 == 0;
    return !first && draws() % 2 == 0;
  };
  std::uint32_t seed = 1;
  while (!crosses(seed)) ++seed;
  seen.add("V.python_random", verdicts([&](const Call& call, bool accident) -> Tensors {
             std::minstd_rand draws(seed);
             const Tensor x = variable({0.5, -1});
             const Function body = of_one([&](const Tensor& in) {
               return tanh(accident && draws() % 2 == 0 ? scale(in, 2) : in);
             });
             backward(sum(call(body, {x})[0]));
             return {x.grad()};
           }));
}

RULE("V", "without preserved random state a new mask silently makes a wrong gradient") {
  seen.add("V.no_preserved_random_state", verdicts([](const Call& call, bool accident) -> Tensors {
             const Tensor x = ramp({64});
             CheckpointOptions options;
             options.preserve_rng = !accident;
             const Function body = of_one([](const Tensor& in) { return tanh(dropout(in, 0.5)); });
             backward(sum(call(body, {x}, options)[0]));
             return {x.grad()};
           }));
}

RULE("V", "without changes between forward and backward all gradients are right") {
  seen.add("V.nothing_happens", verdicts([](const Call& call, bool) -> Tensors {
             const Tensor x = variable({0.5, -1});
             const Tensor w = variable({2, 3});
             const Function body =
                 of_one([&](const Tensor& in) { return tanh(dropout(mul(in, w), 0.5)); });
             backward(sum(call(body, {x})[0]));
             return {x.grad(), w.grad()};
           }));
}

}  // namespace rematch::golden
