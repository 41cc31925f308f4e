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

}  // namespace

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
  const Record plain = record_of(c, false);
  const Record lost = record_of(c, wrong);
  const Record kept = record_of(c, true);
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
    table.row("layer {} {} | {:.3f} | {:.3f}", parameter.layer, parameter.role,
              cosine(expected, got), cosine(expected, values_of(kept, kept.observations[i])));
    if (o.index == 0) producer = cosine(expected, got);
    others_right &= (parameter.layer == 0 || expected == got);
  }
  report.claim(are_same(plain, lost, {Quantity::output, Quantity::loss}),
               "Outputs and loss of the step are the plain run's to the bit.");
  report.claim(producer < 0.9 && others_right,
               "Of the layer that produced the value, the gradient points elsewhere: cosine {:.3f} "
               "(0.14 to 0.55 were reported). Every other gradient is right to the bit.",
               producer);
  claim_law_finds(c, wrong, "it", "parameter-gradients", report);
}

}  // namespace rematch::scenarios::side_output_story
