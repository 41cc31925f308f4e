#include <fmt/format.h>

#include "engine/ops/arithmetic.h"
#include "scenarios/support/judging.h"
#include "scenarios/support/step.h"

namespace rematch::scenarios::same_tensor_twice_story {
namespace {

/// A table from tensors to their stand-ins: an input that comes twice has one.
class ByIdentity final : public Mechanics {
 public:
  Tensors bind_inputs(std::span<const Tensor> saved,
                      const std::vector<bool>& requires_grad) const override {
    Tensors bound = Mechanics::bind_inputs(saved, requires_grad);
    for (Tensor& t : bound) {
      t = *std::find_if(bound.begin(), bound.end(),
                        [&](const Tensor& other) { return other.storage() == t.storage(); });
    }
    return bound;
  }
};

/// d(x * y)/dx at x = y = 3, with the same tensor in both places or with two of equal value.
double slope(bool checkpointed, const CheckpointOptions& options, bool same) {
  const AmbientScope scope(std::make_shared<Ledger>());
  Tensor x = Tensor::full({1}, DType::float32, 3).set_requires_grad(true);
  const Tensor y = same ? x : Tensor::full({1}, DType::float32, 3).set_requires_grad(true);
  const Function product = [](const Tensors& in) -> Tensors { return {mul(in[0], in[1])}; };
  backward((checkpointed ? checkpoint(product, {x, y}, options) : product({x, y}))[0]);
  return x.grad().item();
}

}  // namespace

void run(const Options& /*options*/, Report& report) {
  const ByIdentity by_identity;
  const CheckpointOptions right{.reentrant = true};
  const CheckpointOptions wrong{.reentrant = true, .mechanics = &by_identity};
  Table& table = report.table("d/dx of x times y at 3",
                              {"inputs", "plain", "gradients by position", "by identity"});
  bool formula = true;
  for (const bool same : {false, true}) {
    const double values[] = {slope(false, {}, same), slope(true, right, same),
                             slope(true, wrong, same)};
    table.row({same ? "x and x: the slope of x squared, 6" : "x and y: 3", values[0], values[1],
               values[2]});
    formula &= values[0] == values[1] && values[2] == (same ? 12 : 3);
  }
  report.claim(formula,
               "A table keyed by the tensor has one entry for an input that comes twice: it "
               "gathers both contributions, 6, and is read for both positions: 12. Two different "
               "tensors go right, so tests rarely see it.");
  const Case c = case_from_json(R"({"format": 1, "seed": 36999, "input": [4, 6], "layers": [
    {"kind": "linear", "features": 6}, {"kind": "duplicate"},
    {"kind": "tanh"}, {"kind": "add", "from": [1, 1]}, {"kind": "linear", "features": 2}],
    "plan": {"segments": [{"begin": 2, "end": 4, "variant": "non_reentrant"}]}})");
  tell_case(c, report);
  EngineSubject judged([&](const Function& f, const Tensors& in, const CheckpointOptions&) {
    return checkpoint(f, in, wrong);
  });
  claim_law_finds(c, judged, "it in a skip that begins where its segment begins",
                  "parameter-gradients", report);
}

}  // namespace rematch::scenarios::same_tensor_twice_story
