// Automatic mixed precision and recomputes, to bfloat16.
#include "engine/autograd/autocast.h"

#include "engine/ops/activation.h"
#include "engine/ops/arithmetic.h"
#include "engine/ops/cast.h"
#include "engine/ops/linear.h"
#include "golden/semantics/testing/observer.h"
#include "golden/semantics/testing/rules.h"
#include "golden/semantics/testing/situations.h"

namespace rematch::golden {
namespace {

using nlohmann::json;

/// Autocast around the forward or around the backward, or around neither.
class MaybeAutocast {
 public:
  explicit MaybeAutocast(bool on, bool cache = true) {
    if (on) scope_.emplace(true, cache);
  }

 private:
  std::optional<AutocastScope> scope_;
};

/// (enabled, dtype, cache) as the function finds them in its forward and in its recomputation.
json tuples(Way way, bool around_forward, bool around_backward, bool cache = true) {
  json found = json::array();
  const Function body = of_one([&](const Tensor& x) {
    const Autocast& now = ambient().autocast;
    found.push_back(json::array({now.enabled, to_string(now.dtype), now.cache_enabled}));
    return tanh(x);
  });
  Tensor y;
  {
    const MaybeAutocast scope(around_forward, cache);
    y = sum(Call(way)(body, {variable({0.5})})[0]);
  }
  const MaybeAutocast scope(around_backward);
  backward(y);
  return found;
}

Tensor ramp32() {
  const std::vector<double> values = ramp({2, 2}).to_vector();
  return Tensor::from(values, {2, 2}, DType::float32).set_requires_grad(true);
}

struct AutocastStep {
  Tensors gradients;
  int forward_products = 0;
  int recomputation_products = 0;
};

/// A region that multiplies by one weight twice under autocast. `warm`: the weight was already used
/// before the region.
AutocastStep step(const Call& call, bool warm, bool cache = true) {
  const Tensor x = ramp32();
  const Tensor w = ramp32();
  const Function body = of_one([&](const Tensor& in) { return tanh(linear(linear(in, w), w)); });
  AutocastStep result;
  Tensor loss;
  {
    const AutocastScope on(true, cache);
    if (warm) linear(x, w);
    const Observer forward;
    loss = sum(cast(call(body, {x})[0], DType::float32));
    result.forward_products = forward.count("linear");
  }
  const Observer recomputation;
  backward(loss);
  result.recomputation_products = recomputation.count("linear");
  result.gradients = {x.grad(), w.grad()};
  return result;
}

Call keeping_products(bool early_stop = true) {
  CheckpointOptions options;
  options.early_stop = early_stop;
  options.policy = [](const OpInstance& call) {
    return call.op == "linear" ? Keep::must_save : Keep::prefer_recompute;
  };
  return Call(Way::non_reentrant, options);
}

}  // namespace

RULE("AM4", "a recomputation runs under the autocast of its forward, wherever backward runs") {
  json around;
  json no_cache;
  json backward_only;
  for (const Way way : kVariants) {
    around[to_string(way)] = tuples(way, true, false);
    no_cache[to_string(way)] = tuples(way, true, false, false);
    backward_only[to_string(way)] = tuples(way, false, true);
  }
  seen.add("AM4.tuple", around);
  seen.add("AM4.cache_disabled", no_cache);
  seen.add("AM4.around_backward", backward_only);
}

RULE("AM4", "autocast inside a function is recomputed with it") {
  json facts;
  for (const Way way : kVariants) {
    json dtypes = json::array();
    const Tensor w = ramp32().detach();
    const Function body = of_one([&](const Tensor& x) {
      Tensor y;
      {
        const AutocastScope on;
        y = linear(x, w);
      }
      dtypes.push_back(to_string(y.dtype()));
      return tanh(cast(y, DType::float32));
    });
    backward(sum(Call(way)(body, {ramp32()})[0]));
    facts[to_string(way)] = dtypes;
  }
  seen.add("AM4.inside", facts);
}

RULE("AM4", "a warm cache of casts changes no gradient, with a policy or without") {
  for (const bool warm : {false, true}) {
    const std::string name = std::string("AM4.weight_cast_") + (warm ? "warm" : "cold");
    const AutocastStep plain = step(Call(Way::plain), warm);
    json facts{{"plain_forward_products", plain.forward_products}};
    for (const Way way : kVariants) {
      const AutocastStep found = step(Call(way), warm);
      facts[to_string(way) + "_forward_products"] = found.forward_products;
      facts[to_string(way) + "_recomputation_products"] = found.recomputation_products;
      facts[to_string(way) + "_verdict"] = judged([&] { return found.gradients; }, plain.gradients);
    }
    seen.add(name, facts);

    const auto verdict = [&](const Call& call, bool cache) {
      return judged([&] { return step(call, warm, cache).gradients; },
                    step(Call(Way::plain), warm, cache).gradients);
    };
    seen.add(name + "_selective",
             {{"verdict", verdict(keeping_products(), true)},
              {"verdict_without_early_stop", verdict(keeping_products(false), true)},
              {"verdict_without_cast_cache", verdict(keeping_products(), false)}});
  }
}

}  // namespace rematch::golden
