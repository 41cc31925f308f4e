#include <fmt/format.h>

#include <cmath>
#include <numeric>

#include "scenarios/support/judging.h"

namespace rematch::scenarios::side_output_story {
namespace {

double cosine(const std::vector<double>& a, const std::vector<double>& b) {
  const auto dot = [](const std::vector<double>& x, const std::vector<double>& y) {
    return std::inner_product(x.begin(), x.end(), y.begin(), 0.0);
  };
  return dot(a, b) / std::sqrt(dot(a, a) * dot(b, b));
}

void run(const Options& /*options*/, Report& report) {
  // Layer 0 produces, layer 1 parts the result: one half goes on, the other is read by the two
  // later segments.
  const Case c = case_from_json(R"({"format": 1, "seed": 813, "input": [16, 12], "layers": [
    {"kind": "linear", "features": 12}, {"kind": "split", "features": 6},
    {"kind": "linear", "features": 6}, {"kind": "tanh"}, {"kind": "add", "from": [1, 1]},
    {"kind": "linear", "features": 6}, {"kind": "tanh"}, {"kind": "add", "from": [1, 1]},
    {"kind": "linear", "features": 4}],
    "plan": {"segments": [{"begin": 2, "end": 5, "variant": "reentrant"},
                          {"begin": 5, "end": 8, "variant": "reentrant"}]}})");
  tell_case(c, report);
  // Only the first input, the hidden states, is known to autograd; what comes beside it is read as
  // it is.
  EngineSubject wrong(find_fault("A1")->make);
  EngineSubject right;
  const Record plain = record_of(c, right, false);
  const Record lost = record_of(c, wrong, true);
  const Record kept = record_of(c, right, true);
  Table& table = report.table("Gradients beside the plain run's, by cosine of the angle",
                              {"parameter", "side value read detached", "engine"});
  const Geometry geometry = validate(c);
  double producer = 1;
  bool others_right = true;
  // Observations are made in the same order in every run.
  for (std::size_t i = 0; i < plain.observations.size(); ++i) {
    const Observation& o = plain.observations[i];
    if (o.quantity != Quantity::parameter_gradient) continue;
    const auto& parameter = geometry.parameters[static_cast<std::size_t>(o.index)];
    const std::vector<double> expected = values_of(plain, o);
    const std::vector<double> got = values_of(lost, lost.observations[i]);
    table.row({fmt::format("layer {} {}", parameter.layer, parameter.role),
               fmt::format("{:.3f}", cosine(expected, got)),
               fmt::format("{:.3f}", cosine(expected, values_of(kept, kept.observations[i])))});
    if (o.index == 0) producer = cosine(expected, got);
    others_right = others_right && (parameter.layer == 0 || expected == got);
  }
  report.claim(values_of(plain, Quantity::output) == values_of(lost, Quantity::output) &&
                   values_of(plain, Quantity::loss) == values_of(lost, Quantity::loss),
               "Outputs and loss of the step are the plain run's to the bit.");
  report.claim(producer < 0.9 && others_right,
               "Of the layer that produced the value, the gradient points elsewhere: cosine {:.3f} "
               "(0.14 to 0.55 were reported). Every other gradient is right to the bit.",
               producer);
  claim_law_finds(c, wrong, "it", "parameter-gradients", report);
}

}  // namespace
}  // namespace rematch::scenarios::side_output_story

REMATCH_STORY(side_output){
    "side_output",
    "Later layers read keys and values that an earlier one made. With checkpointing the loss and "
    "the logits are exactly right, and the maker's gradients are wrong. Why?",
    "https://github.com/unslothai/unsloth-zoo/pull/813",
    "Only the hidden states were known to the checkpoint as an input; the shared value came beside "
    "them and was read detached in the recomputation, so nothing flowed back to its maker. "
    "Whatever a segment reads from another and is to be differentiated must be among its inputs.",
    side_output_story::run,
    {"Return the shared value from the checkpoint that makes it, and pass it to each one that "
     "reads it. For the reentrant variant it has to be an argument of its own: of what is inside a "
     "list or a dictionary it differentiates nothing.",
     {{"RE6.arguments", "list_reentrant_output_requires_grad", "false"},
      {"RE6.arguments", "dict_reentrant_output_requires_grad", "false"},
      {"RE6.arguments", "list_non_reentrant_output_requires_grad", "true"}}}};
