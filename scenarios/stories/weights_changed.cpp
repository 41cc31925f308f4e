#include <fmt/format.h>

#include <optional>

#include "engine/ops/arithmetic.h"
#include "scenarios/support/judging.h"
#include "scenarios/support/step.h"

namespace rematch::scenarios::weights_changed_story {
namespace {

struct Run {
  const char* name;
  bool checkpointed = true;
  CheckpointOptions options = {};
};

struct Outcome {
  double value = 0;
  std::optional<double> slope;
  std::string error;
};

/// J = m * m + m * m + m * m + m * m with m = 2, four steps, each a checkpoint. With `changed`,
/// m is halved in place between forward and backward.
Outcome run_once(const Run& how, bool changed) {
  const AmbientScope scope(std::make_shared<Ledger>());
  Tensor m = Tensor::full({1}, DType::float32, 2).set_requires_grad(true).set_name("m");
  const Function step = [&](const Tensors& in) -> Tensors { return {add(in[0], mul(m, m))}; };
  Tensors sum{Tensor::zeros({1}, DType::float32).set_requires_grad(true)};
  for (int i = 0; i < 4; ++i) {
    sum = how.checkpointed ? checkpoint(step, sum, how.options) : step(sum);
  }
  Outcome outcome;
  outcome.value = sum[0].item();
  if (changed) {
    const GradMode no_grad(false);
    scale_(m, 0.5);
  }
  try {
    backward(sum[0]);
    outcome.slope = m.grad().item();
  } catch (const std::runtime_error& e) {
    outcome.error = e.what();
  }
  return outcome;
}

}  // namespace

void run(const Options& /*options*/, Report& report) {
  report.say(
      "J = 4m², in four steps of a checkpoint each, at m = 2: J = 16, and dJ/dm = 8m = 16. Between "
      "forward and backward m becomes 1, in place: an optimizer's step, an averaged weight, a "
      "second forward that is in flight.");
  Table& table = report.table("dJ/dm", {"run", "J", "m left alone", "m changed before backward"});
  constexpr std::size_t kRuns = 5;
  Outcome changed[kRuns];
  bool right_alone = true;
  constexpr DeterminismCheck kNone = DeterminismCheck::none;
  const Run rows[kRuns] = {
      {"plain", false},
      {"reentrant, DeterminismCheck::none", true, {.reentrant = true, .determinism = kNone}},
      {"non-reentrant, DeterminismCheck::none", true, {.determinism = kNone}},
      {"reentrant", true, {.reentrant = true}},
      {"non-reentrant"}};
  for (std::size_t i = 0; i < kRuns; ++i) {
    const Outcome alone = run_once(rows[i], false);
    changed[i] = run_once(rows[i], true);
    table.row({rows[i].name, changed[i].value, alone.slope.value_or(0),
               changed[i].slope ? Cell(*changed[i].slope) : Cell("an error")});
    right_alone &= alone.value == 16 && alone.slope == 16;
  }
  report.claim(right_alone, "With m left alone every run says 16.");
  report.claim(!changed[0].slope.has_value(), "Changed, the plain run refuses: *{}*.",
               changed[0].error);
  report.claim(changed[1].slope == 8 && changed[2].slope == 8,
               "Without a check both variants of checkpointing say 8, and not a word: J is right, "
               "and its slope is that of another m. A weight is no input of the checkpoint but "
               "something that the function reads, and nobody looks whether it is still the same. "
               "PyTorch's variants do just that (golden/semantics/semantics.json, N10).");
  bool named = true;
  for (const Outcome& o : {changed[3], changed[4]}) {
    named &= !o.slope && o.error.find("\"m\"") != std::string::npos;
  }
  report.claim(named,
               "Unless told otherwise, a recomputation here compares the versions of all that it "
               "reads from outside, and names what changed: *{}*.",
               changed[4].error);
  // A case may have a trial before its first step, in which a weight changes.
  const Case trial = case_from_json(R"({"format": 1, "seed": 5082, "input": [4, 3],
    "layers": [{"kind": "linear", "features": 2}, {"kind": "tanh"}],
    "plan": {"segments": [{"begin": 0, "end": 2, "variant": "non_reentrant"}]},
    "protocol": {"inject": "weight_changed"}})");
  tell_case(trial, report);
  claim_law_finds(trial, "E3", "recomputations that compare no versions", "injected-failures",
                  report);
}

}  // namespace rematch::scenarios::weights_changed_story
