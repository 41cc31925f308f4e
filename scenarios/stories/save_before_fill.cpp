#include <fmt/format.h>

#include <algorithm>

#include "engine/autograd/node.h"
#include "engine/autograd/saved_tensor.h"
#include "engine/ops/activation.h"
#include "engine/ops/arithmetic.h"
#include "properties/case/json.h"
#include "properties/hunt/gather.h"
#include "properties/subjects/engine_subject.h"
#include "scenarios/report/scenario.h"
#include "scenarios/support/step.h"

namespace rematch::scenarios::save_before_fill_story {
namespace {

/// Fills `noise` as a kernel does: below all that counts writes, unless `counted`.
void draw_into(Tensor& noise, bool counted) {
  if (counted) return nn::fill_uniform(noise, 1.0, ambient().streams.at(0));
  Tensor drawn = Tensor::zeros(noise.shape(), noise.dtype());
  nn::fill_uniform(drawn, 1.0, ambient().streams.at(0));
  std::copy_n(std::as_const(drawn).data<float>(), drawn.elements(), noise.data<float>());
}

struct Operation {
  /// The noise goes to the graph before it is drawn: the graph will see it filled, for it shares
  /// the memory, unless whoever takes it leaves at once.
  bool save_first = true;
  bool something_behind = false;  ///< Another operation that saves comes after it.
  bool counted = false;           ///< The fill counts as an in-place write.
};

/// Multiplies by noise that is drawn again for each call.
Tensor noisy(const Tensor& x, const Operation& how) {
  Tensor noise = Tensor::zeros(x.shape(), x.dtype());
  if (!how.save_first) draw_into(noise, how.counted);
  Tensor y = mul(x, noise);
  if (!how.save_first) return y;
  draw_into(noise, how.counted);
  for (std::int64_t i = 0; i < y.elements(); ++i) {
    y.data<float>()[i] = std::as_const(x).data<float>()[i] * std::as_const(noise).data<float>()[i];
  }
  return y;
}

struct Outcome {
  std::vector<double> output;
  std::vector<double> gradient;
};

/// `options`: of the checkpoint around it; nullptr: none.
Outcome run_once(const Operation& operation, const CheckpointOptions* options) {
  const AmbientScope scope(std::make_shared<Ledger>(), 193671);
  Tensor x = Tensor::ones({2, 4}, DType::float32, Tag::inputs).set_requires_grad(true);
  const Function region = [&](const Tensors& in) -> Tensors {
    const Tensor y = noisy(in[0], operation);
    return {operation.something_behind ? tanh(y) : y};
  };
  const Tensor y = (options != nullptr ? checkpoint(region, {x}, *options) : region({x}))[0];
  Outcome outcome{y.to_vector(), {}};
  backward(sum(y));
  outcome.gradient = x.grad().to_vector();
  return outcome;
}

std::string error_of(const Operation& operation, const CheckpointOptions* options) {
  return scenarios::error_of<std::runtime_error>([&] { run_once(operation, options); });
}

}  // namespace

void run(const Options& /*options*/, Report& report) {
  report.say(
      "An operation that multiplies by random noise and keeps the noise for its backward. It saves "
      "the buffer first and fills it then, which a plain run cannot tell from the other order. In "
      "a recomputation with early stop, saving the last tensor is where the recomputation ends.");
  Table& table = report.table("First of eight gradients, plain and with a checkpoint around it",
                              {"the operation", "early stop", "plain", "checkpointed", "equal"});
  int wrong = 0;
  bool outputs_equal = true, zeros = false, only_there = true;
  for (const bool save_first : {true, false}) {
    for (const bool behind : {false, true}) {
      for (const bool early_stop : {true, false}) {
        const Operation operation{.save_first = save_first, .something_behind = behind};
        const CheckpointOptions options{.early_stop = early_stop};
        const Outcome plain = run_once(operation, nullptr);
        const Outcome seen = run_once(operation, &options);
        const bool equal = plain.gradient == seen.gradient;
        table.row("{}, {} | {} | {:.4f} | {:.4f} | {}",
                  save_first ? "saves, then fills" : "fills, then saves",
                  behind ? "tanh behind it" : "last in its region", early_stop ? "on" : "off",
                  plain.gradient[0], seen.gradient[0], yes(equal));
        outputs_equal &= plain.output == seen.output;
        if (equal) continue;
        ++wrong;
        only_there &= save_first && !behind && early_stop;
        zeros = seen.gradient == std::vector<double>(8, 0.0);
      }
    }
  }
  report.claim(wrong == 1 && only_there && zeros && outputs_equal,
               "Every output is right to the bit; the gradient is wrong in one of eight rows: "
               "filled after it was saved, the last to be saved, with early stop. The buffer then "
               "holds what it held before (here zeros; elsewhere whatever lay in that memory).");
  const CheckpointOptions checked{.determinism = DeterminismCheck::values};
  report.claim(error_of({}, &checked).empty(),
               "Not even a check on the saved tensors' bits notices: forward and recomputation are "
               "both looked at when saving, before the noise is there.");
  const std::string refusal = error_of({.counted = true}, nullptr);
  report.claim(refusal.find("changed by an in-place operation") != std::string::npos,
               "Where the fill counts as an in-place write, as it does for every operation of the "
               "engine, the plain step refuses already: what was saved has changed since.");
  const Case c = case_from_json(R"({"format": 1, "seed": 193671, "input": [4, 8], "layers": [
    {"kind": "linear", "features": 8}, {"kind": "rrelu"}, {"kind": "linear", "features": 2}],
    "plan": {"segments": [{"begin": 0, "end": 2, "variant": "non_reentrant"}]},
    "protocol": {"steps": 2}})");
  EngineSubject engine;
  Workspace workspace;
  const Verdicts verdicts = judge_case(c, engine, workspace);
  report.claim(verdicts.kept(),
               "The engine's own rrelu, the operation of the report, saves what is filled: last in "
               "its region and with early stop it keeps every law that applies.");
}

}  // namespace rematch::scenarios::save_before_fill_story
