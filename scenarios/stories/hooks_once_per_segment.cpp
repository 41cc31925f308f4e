#include <fmt/format.h>

#include <stdexcept>
#include <string>

#include "engine/ambient/ambient_scope.h"
#include "engine/autograd/backward.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/nn/layers.h"
#include "engine/ops/activation.h"
#include "engine/ops/arithmetic.h"
#include "engine/ops/linear.h"
#include "properties/case/json.h"
#include "properties/subjects/engine_subject.h"
#include "scenarios/report/scenario.h"
#include "scenarios/support/judging.h"

namespace rematch::scenarios::hooks_once_per_segment_story {
namespace {

enum class Mode { plain, reentrant, non_reentrant };

/// Firings of the hook of a weight that `uses` segments share, in one backward. Checked as a
/// data-parallel reducer does: with `once`, a second firing throws.
int firings(Mode mode, int uses, bool once) {
  const AmbientScope scope(std::make_shared<Ledger>());
  Generator g{81296, 0, 0};
  Tensor weight = nn::parameter({8, 8}, DType::float32);
  nn::fill_uniform(weight, 0.3, g);
  Tensor x = Tensor::ones({4, 8}, DType::float32, Tag::inputs).set_requires_grad(true);
  int fired = 0;
  weight.register_hook([&](const Tensor&) -> Tensor {
    if (++fired > 1 && once) throw std::runtime_error("the weight was marked ready twice");
    return {};
  });
  const Function segment = [&](const Tensors& in) -> Tensors {
    return {tanh(linear(in[0], weight))};
  };
  Tensors values{x};
  CheckpointOptions options;
  options.reentrant = mode == Mode::reentrant;
  for (int i = 0; i < uses; ++i) {
    values = mode == Mode::plain ? segment(values) : checkpoint(segment, values, options);
  }
  backward(sum(values[0]));
  return fired;
}

bool refused(Mode mode) {
  try {
    firings(mode, 3, true);
  } catch (const std::runtime_error&) {
    return true;
  }
  return false;
}

void run(const Options& /*options*/, Report& report) {
  report.say(
      "One weight, used by k segments that are checkpointed each, and a hook on its gradient. Data "
      "parallelism hangs such a hook on every parameter, to send its gradient off when it is "
      "ready.");
  Table& table = report.table("Firings of the weight's hook in one backward",
                              {"segments that use it", "plain", "reentrant", "non-reentrant"});
  Chart chart{"Firings of one weight's hook in one backward",
              "segments that use the weight",
              "firings",
              Chart::Kind::bars,
              {{"plain", {}, {}}, {"reentrant", {}, {}}, {"non-reentrant", {}, {}}},
              {}};
  bool k_times = true;
  bool once = true;
  for (const int uses : {1, 2, 3, 6}) {
    const int counts[] = {firings(Mode::plain, uses, false), firings(Mode::reentrant, uses, false),
                          firings(Mode::non_reentrant, uses, false)};
    table.row({std::to_string(uses), std::to_string(counts[0]), std::to_string(counts[1]),
               std::to_string(counts[2])});
    chart.categories.push_back(std::to_string(uses));
    for (std::size_t i = 0; i < 3; ++i) chart.series[i].y.push_back(counts[i]);
    k_times = k_times && counts[1] == uses;
    once = once && counts[0] == 1 && counts[2] == 1;
  }
  report.chart(std::move(chart));
  report.claim(
      k_times && once,
      "Plain and non-reentrant: once, when all contributions are summed. Reentrant: once "
      "for each of the k segments, because each recomputation is a backward of its own that "
      "accumulates into the weight by itself.");
  report.claim(
      !refused(Mode::plain) && refused(Mode::reentrant) && !refused(Mode::non_reentrant),
      "A reducer that expects each parameter ready once refuses the reentrant run's second "
      "firing; plain and non-reentrant runs pass.");
  const Case c = case_from_json(R"({"format": 1, "seed": 81296, "input": [4, 8], "layers": [
    {"kind": "linear", "features": 8}, {"kind": "linear", "features": 8, "tied_to": 0},
    {"kind": "linear", "features": 8, "tied_to": 0}],
    "plan": {"segments": [{"begin": 0, "end": 1, "variant": "non_reentrant"},
                          {"begin": 1, "end": 2, "variant": "non_reentrant"},
                          {"begin": 2, "end": 3, "variant": "non_reentrant"}]},
    "protocol": {"input_requires_grad": true}})");
  EngineSubject overridden([](const Function& f, const Tensors& in, CheckpointOptions options) {
    options.reentrant = true;
    return checkpoint(f, in, options);
  });
  claim_law_finds(c, overridden,
                  "the surplus firings where the non-reentrant variant was asked for", "hooks",
                  report);
}

}  // namespace
}  // namespace rematch::scenarios::hooks_once_per_segment_story

namespace rematch::scenarios {

extern const Scenario hooks_once_per_segment;
const Scenario hooks_once_per_segment{
    "hooks_once_per_segment",
    "\"Expected to mark a variable ready only once\": why does data-parallel training with "
    "checkpointing and a shared weight end like this?",
    "https://github.com/pytorch/pytorch/issues/81296; the error in "
    "https://github.com/huggingface/accelerate/issues/2017",
    "A reentrant checkpoint's recomputation is a backward pass of its own: a weight that k "
    "segments share "
    "has its gradient hook fired k times. The non-reentrant variant has one backward, and fires it "
    "once, as a plain run does.",
    hooks_once_per_segment_story::run,
    {"Pass `use_reentrant=False`: hooks of a weight then fire once a backward, also those that run "
     "after the accumulation.",
     {{"RE8.tensor_hook", "reentrant", "[1, 2, 3, 4]"},
      {"RE8.tensor_hook", "non_reentrant", "[1, 1, 1, 1]"},
      {"RE8.accumulation_hook", "non_reentrant", "[1, 1, 1, 1]"}}}};

}  // namespace rematch::scenarios
