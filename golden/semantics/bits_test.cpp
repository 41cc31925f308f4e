// When gradients agree bit for bit.
#include <cmath>

#include "engine/ops/arithmetic.h"
#include "engine/testing/values.h"
#include "golden/semantics/testing/rules.h"
#include "golden/semantics/testing/situations.h"

namespace rematch::golden {
namespace {

using nlohmann::json;
using testing::same_bits;

/// Values whose sums round, as the probes make them.
Tensor rounding(std::uint64_t seed) {
  std::vector<double> values;
  std::uint64_t state = seed;
  for (int i = 0; i < 64; ++i) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    const double magnitude = std::ldexp(static_cast<double>(state >> 24),
                                        -40 + static_cast<int>((state >> 8) % 24) - 12);
    values.push_back(i % 2 == 0 ? magnitude : -magnitude);
  }
  return Tensor::from(values, {64}, DType::float64);
}

struct Gradients {
  Tensor w;
  Tensor x;
};

Gradients of_shared(Way way, int uses, bool filled) {
  Tensor w = rounding(1).set_requires_grad(true);
  const Tensor x = rounding(2).set_requires_grad(true);
  if (filled) w.set_grad(rounding(3));
  const Function body = [&](const Tensors& in) -> Tensors { return {mul(mul(in[0], w), in[1])}; };
  Tensor total;
  for (int k = 0; k < uses; ++k) {
    const Tensor part = Call(way)(body, {x, rounding(10 + static_cast<std::uint64_t>(k))})[0];
    total = k == 0 ? part : add(total, part);
  }
  backward(sum(total));
  return {w.grad(), x.grad()};
}

json table(int uses) {
  json facts;
  for (const bool filled : {false, true}) {
    const std::string grad = filled ? "filled_grad" : "empty_grad";
    const Gradients plain = of_shared(Way::plain, uses, filled);
    for (const Way way : kVariants) {
      const Gradients found = of_shared(way, uses, filled);
      facts[to_string(way) + "_weight_same_with_" + grad] = same_bits(found.w, plain.w);
      facts[to_string(way) + "_input_same_with_" + grad] = same_bits(found.x, plain.x);
    }
  }
  return facts;
}

using Gradient = std::function<Tensor(Way way, bool filled)>;

json compared(const Gradient& gradient) {
  json facts;
  for (const bool filled : {false, true}) {
    const Tensor plain = gradient(Way::plain, filled);
    for (const Way way : kVariants) {
      facts[to_string(way) + "_same_with_" + (filled ? "filled" : "empty") + "_grad"] =
          same_bits(gradient(way, filled), plain);
    }
  }
  return facts;
}

}  // namespace

RULE("B1", "gradients of weights that one checkpoint uses have the bits of the plain run") {
  seen.add("B1.untied", table(1));
}

RULE("B2",
     "a tied weight's gradient has other bits only where a reentrant recomputation adds to a sum") {
  for (int uses = 2; uses <= 4; ++uses) {
    seen.add("B2.tied_" + std::to_string(uses), table(uses));
  }
  seen.add("B2.exact_data", compared([](Way way, bool filled) {
             Tensor w = variable({3, -2});
             const Tensor x = variable({5, 7});
             if (filled) w.set_grad(constant({11, 13}));
             Tensor total;
             for (const double s : {1, 2, 4}) {
               const Tensor part = Call(way)(
                   of_one([w, s](const Tensor& in) { return scale(mul(in, w), s); }), {x})[0];
               total = total.defined() ? add(total, part) : part;
             }
             backward(sum(total));
             return w.grad();
           }));
  seen.add("B2.within_one", compared([](Way way, bool filled) {
             Tensor w = rounding(1).set_requires_grad(true);
             if (filled) w.set_grad(rounding(3));
             const Function body = of_one([&](const Tensor& x) {
               Tensor total = mul(mul(x, w), rounding(10));
               total = add(total, mul(mul(x, w), rounding(11)));
               return add(total, mul(mul(x, w), rounding(12)));
             });
             backward(sum(Call(way)(body, {rounding(2).set_requires_grad(true)})[0]));
             return w.grad();
           }));
}

}  // namespace rematch::golden
