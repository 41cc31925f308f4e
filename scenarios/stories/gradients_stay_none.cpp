#include <fmt/format.h>

#include <algorithm>

#include "engine/nn/optimizer.h"
#include "engine/ops/loss.h"
#include "scenarios/support/judging.h"
#include "scenarios/support/step.h"

namespace rematch::scenarios::gradients_stay_none_story {
namespace {

constexpr int kSteps = 40;

struct Training {
  std::vector<double> losses;
  std::int64_t with_gradient = 0;  ///< How many of 8 parameters have one in the last step.
  std::vector<std::byte> weights;
};

/// Four linear layers on one batch; `checkpointed` are parts of them, with tanh between.
Training train(const std::vector<Region>& checkpointed, const Mechanics* mechanics = nullptr) {
  const AmbientScope scope(std::make_shared<Ledger>());
  Generator g{5179, 0, 0};
  const ModulePtr tanh = activation(nn::ActivationKind::tanh);
  nn::Sequential model({linear_layer(16, 16, g), tanh, linear_layer(16, 16, g), tanh,
                        linear_layer(16, 16, g), tanh, linear_layer(16, 4, g)});
  const Tensor input = normal_input({32, 16}, g);
  const Tensor target = normal_input({32, 4}, g);
  const Tensors& parameters = model.parameters();
  nn::Sgd sgd(parameters, 0.2);
  Training result;
  for (int i = 0; i < kSteps; ++i) {
    const Tensor y = run_regions(model.functions(), checkpointed, input,
                                 {.reentrant = true, .mechanics = mechanics});
    const Tensor loss = mse_loss(y, target);
    result.losses.push_back(loss.item());
    backward(loss);
    result.with_gradient = std::count_if(parameters.begin(), parameters.end(),
                                         [](const Tensor& p) { return p.grad().defined(); });
    sgd.step();
    sgd.zero_grad();
  }
  result.weights = bits_of(parameters);
  return result;
}

}  // namespace

void run(const Options& /*options*/, Report& report) {
  // grad() of the inputs instead of backward(): it touches no other leaf.
  const EngineParts inputs_only = find_fault("G3")->make();
  const std::vector<Region> middle{{2, 4}, {4, 6}};
  const Training plain = train({});
  const Training broken = train(middle, inputs_only.mechanics.get());
  const Training mended = train(middle);
  report.say(
      "A wrapper recomputes its segment in backward and asks for the gradients of the segment's "
      "inputs: `grad(outputs, inputs, gradients)`. They are right, and all that lies before the "
      "segment trains. Four linear layers with tanh between them, the two in the middle "
      "checkpointed so.");
  Table& table = report.table(fmt::format("{} steps on one batch", kSteps),
                              {"run", "parameters with a gradient", "first loss", "last loss"});
  Chart chart =
      lines("Loss while half of the parameters stand still", "step", "mean squared error");
  const auto add = [&](const char* name, const Training& t) {
    table.row("{} | {} of 8 | {:.4f} | {:.4f}", name, t.with_gradient, t.losses.front(),
              t.losses.back());
    if (&t != &mended) chart.series.push_back(numbered(name, t.losses));
  };
  add("plain", plain);
  add("grad() of the inputs", broken);
  add("backward()", mended);
  report.chart(std::move(chart));
  report.claim(broken.with_gradient == 4 && broken.losses.back() < broken.losses.front(),
               "{} of 8 parameters get a gradient, and the loss falls all the same, from {:.4f} to "
               "{:.4f}: it does not tell.",
               broken.with_gradient, broken.losses.front(), broken.losses.back());
  report.claim(mended.losses == plain.losses && mended.weights == plain.weights,
               "With `backward()`, which accumulates into every leaf that the recomputation "
               "reaches, all losses and the weights at the end equal the plain run's to the bit.");
  const Case c = case_from_json(R"({"format": 1, "seed": 5179, "input": [8, 16], "layers": [
    {"kind": "linear", "features": 16}, {"kind": "tanh"},
    {"kind": "linear", "features": 16}, {"kind": "tanh"}, {"kind": "linear", "features": 4}],
    "plan": {"segments": [{"begin": 2, "end": 4, "variant": "reentrant"}]}})");
  tell_case(c, report);
  claim_law_finds(c, "G3", "what is absent", "absent-gradients", report);
}

}  // namespace rematch::scenarios::gradients_stay_none_story
