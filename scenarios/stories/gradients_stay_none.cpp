#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "engine/ambient/ambient_scope.h"
#include "engine/autograd/backward.h"
#include "engine/nn/layers.h"
#include "engine/nn/optimizer.h"
#include "engine/ops/activation.h"
#include "engine/ops/loss.h"
#include "properties/case/json.h"
#include "properties/subjects/engine_subject.h"
#include "scenarios/report/scenario.h"
#include "scenarios/support/judging.h"
#include "scenarios/support/recomputation_steps.h"

namespace rematch::scenarios::gradients_stay_none_story {
namespace {

constexpr int kSteps = 40;

/// grad() instead of backward(): asked for the inputs, it touches no other leaf.
RecomputationSteps inputs_only() {
  RecomputationSteps steps = right_steps();
  steps.differentiate = [](const Tensors& outputs, const Tensors& gradients, const Tensors& bound) {
    return grad(outputs, bound, gradients);
  };
  return steps;
}

struct Training {
  std::vector<double> losses;
  int with_gradient = 0;  ///< Of 8 parameters, in the last step.
  std::vector<double> weights;
};

/// Four linear layers on one batch; the two in the middle, each with its tanh, are checkpointed
/// with `steps`, or run plain without.
Training train(const RecomputationSteps* steps) {
  const AmbientScope scope(std::make_shared<Ledger>());
  Generator g{5179, 0, 0};
  std::vector<std::unique_ptr<nn::Linear>> layers;
  Tensors parameters;
  for (const std::int64_t width : {16, 16, 16, 4}) {
    layers.push_back(std::make_unique<nn::Linear>(16, width, true, DType::float32, &g));
    for (const Tensor& p : layers.back()->parameters()) parameters.push_back(p);
  }
  Tensor input = Tensor::empty({32, 16}, DType::float32, Tag::inputs);
  Tensor target = Tensor::empty({32, 4}, DType::float32, Tag::inputs);
  nn::fill_normal(input, g);
  nn::fill_normal(target, g);
  nn::Sgd sgd(parameters, 0.2);
  Training result;
  for (int i = 0; i < kSteps; ++i) {
    Tensor x = tanh(layers[0]->forward(input));
    for (const std::size_t middle : {1, 2}) {
      const Function segment = [&layers, middle](const Tensors& in) -> Tensors {
        return {tanh(layers[middle]->forward(in[0]))};
      };
      x = steps != nullptr ? handmade_checkpoint(segment, {x}, *steps)[0] : segment({x})[0];
    }
    const Tensor loss = mse_loss(layers[3]->forward(x), target);
    result.losses.push_back(loss.item());
    backward(loss);
    result.with_gradient = static_cast<int>(std::count_if(
        parameters.begin(), parameters.end(), [](const Tensor& p) { return p.grad().defined(); }));
    sgd.step();
    sgd.zero_grad();
  }
  for (const Tensor& p : parameters) {
    const std::vector<double> values = p.to_vector();
    result.weights.insert(result.weights.end(), values.begin(), values.end());
  }
  return result;
}

void run(const Options& /*options*/, Report& report) {
  const RecomputationSteps wrong = inputs_only();
  const RecomputationSteps right = right_steps();
  const Training plain = train(nullptr);
  const Training broken = train(&wrong);
  const Training mended = train(&right);
  report.say(
      "A wrapper recomputes its segment in backward and asks for the gradients of the "
      "segment's "
      "inputs: "
      "`grad(outputs, inputs, gradients)`. They are right, and all that lies before the segment "
      "trains. Four linear layers with tanh between them, the two in the middle checkpointed so.");
  Table& table = report.table(fmt::format("{} steps on one batch", kSteps),
                              {"run", "parameters with a gradient", "first loss", "last loss"});
  Chart chart{"Loss while half of the parameters stand still",
              "step",
              "mean squared error",
              Chart::Kind::lines,
              {},
              {}};
  const auto add = [&](const char* name, const Training& t) {
    table.row({name, fmt::format("{} of 8", t.with_gradient),
               fmt::format("{:.4f}", t.losses.front()), fmt::format("{:.4f}", t.losses.back())});
    if (&t == &mended) return;
    Series series{name, {}, t.losses};
    for (int i = 1; i <= kSteps; ++i) series.x.push_back(i);
    chart.series.push_back(std::move(series));
  };
  add("plain", plain);
  add("grad() of the inputs", broken);
  add("backward()", mended);
  report.chart(std::move(chart));
  report.claim(broken.with_gradient == 4 && broken.losses.back() < broken.losses.front(),
               fmt::format("{} of 8 parameters get a gradient, and the loss falls all the same, "
                           "from {:.4f} to {:.4f}: it does not tell.",
                           broken.with_gradient, broken.losses.front(), broken.losses.back()));
  report.claim(
      mended.losses == plain.losses && mended.weights == plain.weights,
      "With `backward()`, which accumulates into every leaf that the recomputation reaches, all "
      "losses and the weights at the end equal the plain run's to the bit.");
  const Case c = case_from_json(R"({"format": 1, "seed": 5179, "input": [8, 16], "layers": [
    {"kind": "linear", "features": 16}, {"kind": "tanh"},
    {"kind": "linear", "features": 16}, {"kind": "tanh"}, {"kind": "linear", "features": 4}],
    "plan": {"segments": [{"begin": 2, "end": 4, "variant": "reentrant"}]}})");
  tell_case(c, report);
  EngineSubject subject([&](const Function& f, const Tensors& in, const CheckpointOptions&) {
    return handmade_checkpoint(f, in, wrong);
  });
  claim_law_finds(c, subject, "what is absent", "absent-gradients", report);
}

}  // namespace
}  // namespace rematch::scenarios::gradients_stay_none_story

namespace rematch::scenarios {

extern const Scenario gradients_stay_none;
const Scenario gradients_stay_none{
    "gradients_stay_none",
    "My checkpointed function runs and backward() goes through, but lin.W.grad is None. Why?",
    "https://github.com/chainer/chainer/pull/5179; the same in "
    "https://github.com/ooples/AiDotNet.Tensors/pull/643",
    "The recomputation was differentiated with respect to the segment's inputs only, so that the "
    "parameters used inside were never reached. Differentiate the recomputation with backward(), "
    "which "
    "reaches every leaf. The loss still falls, because the other layers train.",
    gradients_stay_none_story::run,
    {"`torch.utils.checkpoint` reaches the weights. In an `autograd.Function` of your own, "
     "differentiate the recomputation by `torch.autograd.backward(outputs, gradients)`, not by "
     "`torch.autograd.grad(outputs, inputs)`. Like PyTorch's reentrant variant it then cannot "
     "serve `torch.autograd.grad()`, which the non-reentrant one does.",
     {{"RE4.one_input_trains", "weight_has_gradient", "true"},
      {"RE2.grad", "error", R"("partial backward")"},
      {"N15.grad", "verdict", R"("right")"}}}};

}  // namespace rematch::scenarios
