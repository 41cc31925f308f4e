#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/ops/arithmetic.h"
#include "engine/ops/linear.h"
#include "properties/hunt/gather.h"
#include "scenarios/support/judging.h"
#include "scenarios/support/step.h"

namespace rematch::scenarios::tied_weights_story {
namespace {

/// The originals take part in the recomputation: its backward writes into their .grad, and what
/// then stands there is returned as well.
class Originals final : public Mechanics {
 public:
  Tensors bind_inputs(std::span<const Tensor> /*saved*/,
                      const std::vector<bool>& /*requires_grad*/) const override {
    return std::exchange(inputs_, {});
  }
  Tensors checkpoint_with(const Function& function, const Tensors& inputs) {
    inputs_ = inputs;
    return checkpoint(function, inputs, {.reentrant = true, .mechanics = this});
  }

 private:
  /// Until the recomputation has them.
  mutable Tensors inputs_;
};

/// Gradient of a head's weight that is an input of its checkpoint, from `prior` on.
double head_gradient(bool originals, double prior) {
  const AmbientScope scope(std::make_shared<Ledger>());
  const double row[] = {2, 3};
  const Tensor hidden = Tensor::from(row, {1, 2});
  Tensor weight = Tensor::ones({1, 2}, DType::float32).set_requires_grad(true);
  if (prior != 0) weight.set_grad(Tensor::full({1, 2}, DType::float32, prior, Tag::gradients));
  const Function head = [](const Tensors& in) -> Tensors { return {linear(in[0], in[1])}; };
  Originals wrong;
  const Tensors y = originals ? wrong.checkpoint_with(head, {hidden, weight})
                              : checkpoint(head, {hidden, weight}, {.reentrant = true});
  backward(sum(y[0]));
  return weight.grad().at(0);
}

void counted_twice(Report& report) {
  Table& table = report.table("Gradient of a head's weight that is handed to its checkpoint",
                              {"gradient from before", "plain", "the recomputation binds a copy",
                               "the recomputation binds the weight itself"});
  bool formula = true;
  for (const double prior : {0.0, 10.0}) {
    constexpr double kGradient = 2;
    const double right = head_gradient(false, prior);
    const double wrong = head_gradient(true, prior);
    table.row({prior, prior + kGradient, right, wrong});
    formula &= right == prior + kGradient && wrong == 2 * prior + 2 * kGradient;
  }
  report.claim(
      formula,
      "When the recomputation works on the weight itself, its backward adds the gradient g to what "
      "was there, p, and the sum is returned and added once more: 2p + 2g instead of p + g, "
      "exactly as reported. With an empty p it looks like a factor of two.");
  const Case c = case_from_json(R"({"format": 1, "seed": 892, "input": [2, 3], "layers": [
    {"kind": "linear", "features": 3}],
    "plan": {"segments": [{"begin": 0, "end": 1, "variant": "reentrant"}]},
    "protocol": {"input_requires_grad": true}})");
  Originals originals;
  EngineSubject wrong([&](const Function& f, const Tensors& in, const CheckpointOptions&) {
    return originals.checkpoint_with(f, in);
  });
  claim_law_finds(c, wrong, "it on a segment's input", "input-gradients", report);
}

struct Order {
  int different_runs = 0;
  double largest = 0;  ///< Relative to the largest gradient of the run.
  bool kept = true;    ///< All laws are kept.
};

/// Compares the gradient of a weight that three checkpointed segments share with the plain run's,
/// over many seeds.
Order compare(Variant variant, bool prior, int seeds) {
  Case c = case_from_json(R"({"format": 1, "input": [4, 8], "seed": 0, "layers": [
    {"kind": "linear", "features": 8}, {"kind": "linear", "features": 8, "tied_to": 0},
    {"kind": "linear", "features": 8, "tied_to": 0}],
    "protocol": {"input_requires_grad": true}})");
  for (int i = 0; i < 3; ++i) add_segment(c, i, i + 1, variant);
  c.protocol.prior_gradients = prior;
  EngineSubject engine;
  Workspace workspace;
  Order order;
  for (int seed = 1; seed <= seeds; ++seed) {
    c.seed = static_cast<std::uint64_t>(seed);
    order.kept = order.kept && judge_case(c, engine, workspace).kept();
    const std::vector<double> plain = values_of(workspace.plain, Quantity::parameter_gradient);
    const std::vector<double> ours =
        values_of(workspace.checkpointed, Quantity::parameter_gradient);
    if (plain != ours) ++order.different_runs;
    double scale = 0;
    double apart = 0;
    for (std::size_t i = 0; i < plain.size(); ++i) {
      scale = std::max(scale, std::fabs(plain[i]));
      apart = std::max(apart, std::fabs(plain[i] - ours[i]));
    }
    order.largest = std::max(order.largest, apart / scale);
  }
  return order;
}

void summed_otherwise(Report& report) {
  constexpr int kSeeds = 100;
  report.say(
      "What remains in a correct implementation: three checkpointed segments that share a weight, "
      "its gradient compared with the plain run's over 100 seeds.");
  Table& table = report.table(
      "Runs in which a bit of the shared weight's gradient differs",
      {"variant", "gradient from before", "runs that differ", "largest difference, relative"});
  bool kept = true;
  int differ[2][2] = {};
  double largest = 0;
  for (const Variant variant : {Variant::non_reentrant, Variant::reentrant}) {
    for (const bool prior : {false, true}) {
      const Order order = compare(variant, prior, kSeeds);
      table.row("{} | {} | {} of {} | {}",
                variant == Variant::reentrant ? "reentrant" : "non-reentrant",
                prior ? "ones" : "none", order.different_runs, kSeeds,
                order.largest == 0 ? "0" : fmt::format("{:.1e}", order.largest));
      differ[variant == Variant::reentrant][prior] = order.different_runs;
      largest = std::max(largest, order.largest);
      kept &= order.kept;
    }
  }
  report.claim(differ[0][0] == 0 && differ[0][1] == 0 && differ[1][0] == 0,
               "The non-reentrant variant never differs by a bit, the reentrant one not as long as "
               "the gradient was empty.");
  report.claim(
      differ[1][1] > 0 && largest < 1e-5 && kept,
      "With a gradient from before, as in every accumulation step, the reentrant one differs in {} "
      "of {} runs, by {:.1e} at most: it adds ((p + g3) + g2) + g1 where the plain run adds p + "
      "((g3 + g2) + g1). The forecast says so beforehand, and all laws hold in all {} runs.",
      differ[1][1], kSeeds, largest, 4 * kSeeds);
}

}  // namespace

void run(const Options& /*options*/, Report& report) {
  counted_twice(report);
  summed_otherwise(report);
}

}  // namespace rematch::scenarios::tied_weights_story
