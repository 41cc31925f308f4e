// Selective checkpointing: policies over ops, and what they keep.
#include <algorithm>

#include "engine/ops/activation.h"
#include "engine/ops/arithmetic.h"
#include "engine/ops/dropout.h"
#include "engine/ops/linear.h"
#include "engine/ops/view.h"
#include "golden/semantics/testing/observer.h"
#include "golden/semantics/testing/rules.h"
#include "golden/semantics/testing/situations.h"

namespace rematch::golden {
namespace {

using nlohmann::json;

CheckpointOptions with(Policy policy) {
  CheckpointOptions options;
  options.policy = std::move(policy);
  return options;
}

Policy saving(std::string_view op) {
  return [op](const OpInstance& call) {
    return call.op == op ? Keep::must_save : Keep::prefer_recompute;
  };
}

Policy always(Keep keep) {
  return [keep](const OpInstance&) { return keep; };
}

std::vector<std::string> kernels_in_backward(const Tensor& loss) {
  const Observer observer;
  backward(loss);
  return observer.kernels;
}

int count(const std::vector<std::string>& kernels, std::string_view op) {
  int n = 0;
  for (const std::string& kernel : kernels) n += kernel == op;
  return n;
}

std::string second_backward(const Policy& policy) {
  const Function body = of_one([](const Tensor& x) { return tanh(add(x, x)); });
  const Tensor y = sum(non_reentrant(body, {variable({0.5})}, with(policy)));
  backward(y, {.retain_graph = true});
  return outcome([&] { backward(y, {.retain_graph = true}); });
}

std::string differing(const Unary& forward, const Unary& recomputation) {
  CheckpointOptions options = with(saving("tanh"));
  options.early_stop = false;
  int runs = 0;
  const Function body =
      counted_one(runs, [&](const Tensor& x) { return runs == 1 ? forward(x) : recomputation(x); });
  const Tensor y = sum(non_reentrant(body, {variable({0.5, 1})}, options));
  return outcome([&] { backward(y); });
}

/// Of the results of five ops, which are kept between forward and backward: 1 is kept.
std::string results_kept(const Call& call) {
  Storages made;
  const Function body = of_one([&](const Tensor& x) {
    const Tensor a = add(x, x);
    const Tensor b = tanh(a);
    const Tensor c = add(b, b);
    const Tensor d = tanh(c);
    const Tensor e = add(d, d);
    for (const Tensor& t : {a, b, c, d, e}) made.push_back(t.storage());
    return sum(e);
  });
  const Tensor y = call(body, {variable({0.5})})[0];
  std::string kept;
  for (const auto& storage : made) kept += storage.expired() ? '0' : '1';
  return kept;
}

using Mask = std::vector<std::byte>;

/// Which masks two dropouts use in backward, given what the policy says of each.
json masks(Keep first, Keep second) {
  const auto gradient = [](const Call& call) -> Tensors {
    ambient().streams = Streams(7);
    const Tensor x = ramp({64});
    const Function body = of_one([](const Tensor& in) {
      const Tensor a = dropout(in, 0.5);
      return tanh(mul(dropout(mul(a, in), 0.5), in));
    });
    backward(sum(call(body, {x})[0]));
    return {x.grad()};
  };
  const Tensors plain = gradient(Call(Way::plain));
  CheckpointOptions options = with([=](const OpInstance& call) {
    if (call.op != "dropout") return Keep::prefer_recompute;
    return call.index == 0 ? first : second;
  });
  options.early_stop = false;
  const Observer drawn;
  const std::string verdict =
      judged([&] { return gradient(Call(Way::non_reentrant, options)); }, plain);
  // Two of the forward, then those that the recomputation drew; what was kept is the forward's.
  const auto named = [&](const Mask& mask) {
    return mask == drawn.masks[0]   ? "the first's"
           : mask == drawn.masks[1] ? "the second's"
                                    : "another";
  };
  std::size_t next = 2;
  const auto used = [&](Keep keep, std::size_t index) {
    const bool kept = keep == Keep::must_save;
    return named(kept ? drawn.masks[index] : drawn.masks.at(next++));
  };
  json facts{{"verdict", verdict}};
  facts["first_mask_in_recomputation"] = used(first, 0);
  facts["second_mask_in_recomputation"] = used(second, 1);
  CHECK(drawn.masks.size() == next);
  return facts;
}

}  // namespace

RULE("SE1", "a policy that says save keeps an op from running again") {
  json facts;
  const std::pair<const char*, Keep> answers[] = {{"must_save", Keep::must_save},
                                                  {"prefer_save", Keep::prefer_save},
                                                  {"must_recompute", Keep::must_recompute},
                                                  {"prefer_recompute", Keep::prefer_recompute}};
  for (const auto& [name, keep] : answers) {
    const Policy policy = [keep = keep](const OpInstance& call) {
      return call.op == "tanh" ? keep : Keep::prefer_recompute;
    };
    const Function body = of_one([](const Tensor& x) { return tanh(mul(x, x)); });
    const Tensor y = sum(non_reentrant(body, {variable({0.5})}, with(policy)));
    facts[name] = count(kernels_in_backward(y), "tanh");
  }
  seen.add("SE1.policies", facts);
}

RULE("SE2", "a policy is asked in the forward only, once for each op, by op and index") {
  {
    int asked = 0;
    const Policy policy = [&](const OpInstance&) {
      ++asked;
      return Keep::prefer_recompute;
    };
    const Function body = of_one([](const Tensor& x) { return tanh(tanh(x)); });
    const Tensor y = sum(non_reentrant(body, {variable({0.5})}, with(policy)));
    const int forward = asked;
    backward(y);
    seen.add("SE2.calls", {{"forward_calls", forward}, {"backward_calls", asked - forward}});
  }
  int asked = 0;
  const Policy every_second = [&](const OpInstance& call) {
    if (call.op != "linear") return Keep::prefer_recompute;
    ++asked;
    return call.index % 2 == 1 ? Keep::must_save : Keep::prefer_recompute;
  };
  const Tensor w = ramp({2, 2}, false);
  const Function body = of_one([&](Tensor x) {
    for (int i = 0; i < 4; ++i) x = tanh(linear(x, w));
    return x;
  });
  const Tensor y = sum(non_reentrant(body, {ramp({2, 2})}, with(every_second)));
  seen.add("SE2.invocation", {{"recomputed_products", count(kernels_in_backward(y), "linear")},
                              {"asked_for_products", asked}});

  const Function chain = of_one([](Tensor x) {
    for (int i = 0; i < 4; ++i) x = tanh(x);
    return sigmoid(x);
  });
  const auto gradient = [&](const Call& call) {
    const Tensor x = variable({0.5, -1});
    backward(sum(call(chain, {x})[0]));
    return Tensors{x.grad()};
  };
  json further;
  for (const std::vector<int>& kept : {std::vector{0}, {1, 2}, {0, 1, 3}}) {
    CheckpointOptions options = with([&](const OpInstance& call) {
      const bool keeps = call.op == "tanh" && std::ranges::count(kept, call.index) > 0;
      return keeps ? Keep::must_save : Keep::prefer_recompute;
    });
    options.early_stop = false;
    const Observer observer;
    const Tensors found = gradient(Call(Way::non_reentrant, options));
    const int runs = count(observer.kernels, "tanh") - 4;
    std::string name;
    for (const int index : kept) name += (name.empty() ? "" : "_") + std::to_string(index);
    further[name] = {runs, judged([&] { return found; }, gradient(Call(Way::plain)))};
  }
  seen.add("SE2.numbers", further);
}

RULE("SE3", "a policy is not asked about views and ops that make no tensors") {
  json asked = json::array();
  const Policy policy = [&](const OpInstance& call) {
    asked.push_back(call.op);
    return Keep::prefer_recompute;
  };
  const Function body = of_one([](const Tensor& x) {
    const Tensor y = tanh(x);
    y.detach();
    return sum(reshape(y, {2, 2}));
  });
  backward(non_reentrant(body, {variable({0.5, 1, 1.5, 2})}, with(policy)));
  seen.add("SE3.ignored", {{"asked", asked}});
}

RULE("SE4", "kept results serve one recomputation") {
  seen.add("SE4.extra_backward", {{"tanh_saved", second_backward(saving("tanh"))},
                                  {"nothing_saved", second_backward(saving("none"))},
                                  {"unused_saved", second_backward(saving("add"))}});
  const Function body = [](const Tensors& in) -> Tensors {
    return {tanh(mul(in[0], in[0])), sigmoid(mul(in[0], in[0]))};
  };
  const Tensors y = checkpoint(body, {variable({0.5})}, with(saving("mul")));
  const std::string first = outcome([&] { backward(sum(y[0])); });
  const std::string second = outcome([&] { backward(sum(y[1])); });
  seen.add("SE4.two_outputs", {{"first_error", first}, {"second_error", second}});
}

RULE("SE5", "a recomputation under a policy that runs other ops is refused") {
  seen.add("SE5.recomputation_differs", {{"another_operator", differing(tanh, sigmoid)},
                                         {"once_more", differing(tanh, tanh_twice)},
                                         {"once_less", differing(tanh_twice, tanh)}});
}

RULE("SE6", "a kept result that was changed in place is refused") {
  const auto gradient = [](const Call& call) -> Tensors {
    const Tensor x = variable({0.5});
    const Function body = of_one([](const Tensor& in) {
      Tensor y = mul(in, in);
      scale_(y, 2);
      return tanh(y);
    });
    backward(sum(call(body, {x})[0]));
    return {x.grad()};
  };
  const Tensors plain = gradient(Call(Way::plain));
  const auto verdict = [&](const Policy& policy) {
    return judged([&] { return gradient(Call(Way::non_reentrant, with(policy))); }, plain);
  };
  seen.add("SE6.changed",
           {{"checked", verdict(saving("mul"))}, {"not_saved", verdict(saving("none"))}});
}

RULE("SE7",
     "a policy that saves everything keeps more than a plain run, one that saves nothing what "
     "a checkpoint keeps") {
  const auto kept = [](const Policy& policy) {
    return results_kept(Call(Way::non_reentrant, with(policy)));
  };
  seen.add("SE7.kept", {{"plain", results_kept(Call(Way::plain))},
                        {"checkpoint", results_kept(Call(Way::non_reentrant))},
                        {"save_everything", kept(always(Keep::must_save))},
                        {"recompute_everything", kept(always(Keep::must_recompute))},
                        {"save_tanh", kept(saving("tanh"))}});
  const Function body = of_one([](const Tensor& x) { return tanh(add(tanh(mul(x, x)), x)); });
  const auto recomputation = [&](const CheckpointOptions& options) {
    return kernels_in_backward(sum(non_reentrant(body, {variable({0.5})}, options)));
  };
  const auto plain = recomputation({});
  const auto nothing = recomputation(with(saving("none")));
  seen.add("SE7.recompute_everything", {{"checkpoint_tanh", count(plain, "tanh")},
                                        {"recompute_everything_tanh", count(nothing, "tanh")},
                                        {"same_but_for_detach", plain == nothing}});
}

RULE("SE7", "kept products are not multiplied again") {
  json facts;
  const auto run = [&](const std::string& name, const CheckpointOptions& options) {
    const Function body = [](const Tensors& in) -> Tensors {
      return {mul(sigmoid(linear(linear(in[0], in[1]), in[1])), in[1])};
    };
    const Observer observer;
    const Tensor y = sum(non_reentrant(body, {ramp({4, 4}), ramp({4, 4})}, options));
    facts[name + "_forward"] = observer.count("linear");
    facts[name + "_recomputation"] = count(kernels_in_backward(y), "linear");
  };
  run("checkpoint", {});
  run("save_products", with(saving("linear")));
  run("save_sigmoid", with(saving("sigmoid")));
  seen.add("SE7.products", facts);
}

RULE("SE7", "a recomputation runs the function for what was not kept, early stop or not") {
  json facts;
  for (const bool early_stop : {true, false}) {
    const std::string name = early_stop ? "with_early_stop" : "without";
    CheckpointOptions options = with(saving("tanh"));
    options.early_stop = early_stop;
    int runs = 0;
    const Function body = counted_one(runs, [](const Tensor& x) { return tanh(add(tanh(x), x)); });
    const auto kernels = kernels_in_backward(sum(non_reentrant(body, {variable({0.5})}, options)));
    facts[name + "_tanh_kernels"] = count(kernels, "tanh");
    facts[name + "_add_kernels"] = count(kernels, "add");
    facts[name + "_runs"] = runs;
  }
  seen.add("SE7.early_stop", facts);
}

RULE("SE8", "kept results bypass the hooks around the checkpoint") {
  HookCounter hooks;
  const Tensor y = non_reentrant(of_one(tanh), {variable({0.5})}, with(saving("tanh")));
  {
    const HookScope outside(nullptr);
    backward(sum(y));
  }
  seen.add("SE8.surrounding_hooks",
           {{"by_default_packs", hooks.packs}, {"by_default_unpacks", hooks.unpacks}});
}

RULE("SE9", "a kept dropout does not change the mask of a recomputed one") {
  seen.add("SE9.saved_then_recomputed", masks(Keep::must_save, Keep::must_recompute));
  seen.add("SE9.recomputed_then_saved", masks(Keep::must_recompute, Keep::must_save));
  seen.add("SE9.both_saved", masks(Keep::must_save, Keep::must_save));
  seen.add("SE9.both_recomputed", masks(Keep::must_recompute, Keep::must_recompute));
  const Function body = of_one([](const Tensor& x) { return tanh(dropout(x, 0.5)); });
  const Tensor y = sum(non_reentrant(body, {ramp({8})}, with(saving("dropout"))));
  const auto before = random_state();
  backward(y);
  seen.add("SE9.random_state", {{"kept_by_backward", random_state() == before}});
}

RULE("SE10", "selective checkpoints may be nested, each with its own policy") {
  json facts;
  const auto run = [&](const std::string& name, const Policy& outer, const Policy& inner) {
    std::vector<int> runs(2);
    const Function inside = counted_one(runs[1], [](const Tensor& x) { return tanh(mul(x, x)); });
    const Function outside = counted_one(
        runs[0], [&](const Tensor& x) { return non_reentrant(inside, {tanh(x)}, with(inner)); });
    const Tensor y = sum(non_reentrant(outside, {variable({0.5})}, with(outer)));
    const Observer observer;
    facts[name + "_error"] = outcome([&] { backward(y); });
    facts[name + "_runs"] = runs;
    facts[name + "_tanh_kernels"] = observer.count("tanh");
  };
  run("both_save", saving("tanh"), saving("tanh"));
  run("outer_saves", saving("tanh"), saving("none"));
  run("inner_saves", saving("none"), saving("tanh"));
  seen.add("SE10.nested", facts);
}

}  // namespace rematch::golden
