// How long recomputed tensors live, and the ways of going backward.
#include "engine/autograd/node.h"
#include "engine/ops/activation.h"
#include "engine/ops/arithmetic.h"
#include "golden/semantics/testing/rules.h"
#include "golden/semantics/testing/situations.h"

namespace rematch::golden {
namespace {

using nlohmann::json;

/// Recomputed outputs of four tanh that are alive as the gradient arrives at each, at the input,
/// and afterwards.
json alive_on_the_way(bool retain_graph) {
  Storages recomputed;
  json counts = json::array();
  bool recomputing = false;
  const auto note = [&](const Tensor&) {
    counts.push_back(alive(recomputed));
    return Tensor();
  };
  const Function body = of_one([&](const Tensor& in) {
    Tensor x = in;
    for (int i = 0; i < 4; ++i) {
      x = tanh(x);
      if (recomputing) {
        recomputed.push_back(x.storage());
      } else {
        x.register_hook(note);
      }
    }
    return x;
  });
  Tensor x = variable({0.5});
  x.register_hook(note);
  const Tensor y = sum(non_reentrant(body, {x}));
  recomputing = true;
  backward(y, {.retain_graph = retain_graph});
  counts.push_back(alive(recomputed));
  return counts;
}

/// x squared; its vjp asks for the saved tensor twice.
class ReadsTwice final : public Node {
 public:
  explicit ReadsTwice(const Tensor& x) : Node(1) {
    edges.push_back(gradient_edge(x));
    x_.save(x);
  }
  std::string_view name() const override { return "ReadsTwiceBackward"; }
  void release() noexcept override { x_.reset(); }
  void vjp(std::span<Tensor> grads_out, std::span<Tensor> grads_in) override {
    const Tensor first = x_.get(name());
    const Tensor second = x_.get(name());
    grads_in[0] = mul(grads_out[0], add(first, second));
  }

 private:
  SavedTensor x_;
};

Tensor square_read_twice(const Tensor& x) {
  Tensor y = mul(x.detach(), x.detach());
  if (should_record({&x})) set_history(y, std::make_shared<ReadsTwice>(x));
  return y;
}

/// Gradients of a run that counts what it counts, and how they compare with a plain run's.
template <class Run>
json against_plain(const Run& run) {
  json runs;
  const Tensors plain = run(Call(Way::plain), runs);
  const std::string verdict = judged([&] { return run(Call(Way::non_reentrant), runs); }, plain);
  return {{"verdict", verdict}, {"runs", runs}};
}

}  // namespace

RULE("N5", "a recomputed tensor dies when its node has read it, under a retained graph, too") {
  seen.add("N5.alive",
           {{"freed_graph", alive_on_the_way(false)}, {"retained_graph", alive_on_the_way(true)}});
  seen.add("N5.read_twice", verdicts([](const Call& call, bool accident) -> Tensors {
             const Tensor x = variable({3});
             const Unary square = [](const Tensor& t) { return mul(t, t); };
             backward(sum(call(of_one(accident ? Unary(square_read_twice) : square), {x})[0]));
             return {x.grad()};
           }));
}

RULE("N5", "outside of a backward every unpack of a saved tensor recomputes") {
  int runs = 0;
  SavedTensor kept;
  const Function body = counted_one(runs, [&](const Tensor& x) {
    Tensor y = tanh(x);
    if (!ambient().recomputing) {
      kept.save(y);
    } else {
      SavedTensor().save(y);
    }
    return y;
  });
  const Tensor y = non_reentrant(body, {variable({0.5})});
  json counts;
  for (int i = 0; i < 4; ++i) {
    kept.get("test");
    counts.push_back(runs);
  }
  backward(sum(y));
  kept.reset();
  seen.add("N5.outside_backward", {{"runs", counts}, {"runs_after_a_backward", runs}});
}

RULE("N5", "a checkpoint keeps its inputs and nothing else, until backward or the graph's end") {
  json kept;
  json dropped;
  json walked;
  for (const Way way : {Way::plain, Way::reentrant, Way::non_reentrant}) {
    Storages middle;
    const Function body = of_one([&](const Tensor& x) {
      const Tensor a = tanh(x);
      const Tensor b = tanh(a);
      middle.push_back(a.storage());
      middle.push_back(b.storage());
      return tanh(b);
    });
    const Tensor y = Call(way)(body, {variable({0.5})})[0];
    kept[to_string(way)] = alive(middle);
  }
  for (const Way way : kVariants) {
    Tensor h = scale(variable({0.5}), 2);
    const Storages input{h.storage()};
    Tensor y = Call(way)(of_one(tanh), {h})[0];
    h = Tensor();
    dropped[to_string(way) + "_input_kept"] = alive(input) == 1;
    y = Tensor();
    dropped[to_string(way) + "_input_kept_afterwards"] = alive(input) == 1;
  }
  for (const Way way : kVariants) {
    Tensor h = scale(variable({0.5}), 2);
    const Storages input{h.storage()};
    const Tensor loss = sum(Call(way)(of_one(tanh), {h})[0]);
    h = Tensor();
    backward(loss);
    walked[to_string(way) + "_input_kept"] = alive(input) == 1;
  }
  seen.add("N5.after_forward", kept);
  seen.add("N5.dropped_graph", dropped);
  seen.add("N5.after_backward", walked);
}

RULE("N5", "unused recomputed tensors die with their backward") {
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
  backward(sum(y[0]));
  seen.add("N5.leftovers",
           {{"alive_while_the_graph_is", alive(recomputed)}, {"graph_alive", y[1].defined()}});
}

RULE("N14", "a function may differentiate inside, in the non-reentrant variant") {
  for (const bool retain : {true, false}) {
    const auto gradient = [&](const Call& call, int& runs) -> Tensors {
      const Tensor x = variable({0.5, -1});
      const Function body = counted_one(runs, [&](const Tensor& in) {
        const Tensor loss = sum(sigmoid(tanh(in)));
        const Tensor slope = grad(std::span(&loss, 1), std::span(&in, 1), {}, retain)[0];
        return mul(tanh(in), slope.detach());
      });
      backward(sum(call(body, {x})[0]));
      return {x.grad()};
    };
    int plain_runs = 0;
    const Tensors plain = gradient(Call(Way::plain), plain_runs);
    json facts;
    const auto add_facts = [&](const std::string& name, const Call& call) {
      int runs = 0;
      const std::string verdict = judged([&] { return gradient(call, runs); }, plain);
      facts[name] = verdict;
      facts[name + "_runs"] = verdict.starts_with("error") ? 0 : runs;
    };
    add_facts("with_early_stop", Call(Way::non_reentrant));
    add_facts("without", Call(Way::non_reentrant, without_early_stop()));
    add_facts("reentrant", Call(Way::reentrant));
    seen.add(retain ? "N14.inner_graph_retained" : "N14.inner_graph_freed", facts);
  }
}

RULE("N15",
     "grad(), backward with inputs and several roots work through the non-reentrant variant") {
  const auto product = [](const Tensor& w) {
    return of_one([w](const Tensor& x) { return tanh(mul(x, w)); });
  };
  seen.add("N15.grad", against_plain([&](const Call& call, json& counts) -> Tensors {
             const Tensor x = variable({0.5});
             const Tensor w = variable({2});
             int runs = 0;
             const Tensor loss = sum(call(counted(runs, product(w)), {x})[0]);
             const Tensor g = grad(std::span(&loss, 1), std::span(&x, 1))[0];
             counts = runs;
             return {g, x.grad(), w.grad()};
           }));
  bool other_has_gradient = true;
  json inputs = against_plain([&](const Call& call, json& counts) -> Tensors {
    const Tensor x = variable({0.5});
    const Tensor w = variable({2});
    int runs = 0;
    backward(sum(call(counted(runs, product(w)), {x})[0]), {.inputs = {w}});
    counts = runs;
    other_has_gradient = x.grad().defined();
    return {x.grad(), w.grad()};
  });
  inputs["other_leaf_has_gradient"] = other_has_gradient;
  seen.add("N15.inputs", inputs);
  const auto both = [](int& runs) {
    return counted(runs, [](const Tensors& in) -> Tensors {
      return {tanh(in[0]), sigmoid(in[0])};
    });
  };
  seen.add("N15.roots", against_plain([&](const Call& call, json& counts) -> Tensors {
             const Tensor x = variable({0.5, -1});
             int first = 0;
             int second = 0;
             const Tensors ab = call(both(first), {x});
             const Tensor c = call(counted_one(second, tanh), {ab[1]})[0];
             const Tensors roots{sum(ab[0]), sum(ab[1]), sum(c)};
             backward(roots);
             counts = {first, second};
             return {x.grad()};
           }));
}

RULE("N15", "a backward over part of a checkpoint leaves the rest to a later one") {
  seen.add("N15.part_of_the_graph", against_plain([](const Call& call, json& counts) -> Tensors {
             const Tensor x = variable({0.5});
             const Tensor w = variable({2});
             int runs = 0;
             const Function body = counted(runs, [&](const Tensors& in) -> Tensors {
               return {tanh(mul(in[0], w)), sigmoid(in[0])};
             });
             const Tensors y = call(body, {x});
             counts = json::array();
             backward(sum(y[0]));
             counts.push_back(runs);
             backward(sum(y[1]));
             counts.push_back(runs);
             return {x.grad(), w.grad()};
           }));
}

}  // namespace rematch::golden
