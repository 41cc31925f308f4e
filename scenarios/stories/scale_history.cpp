#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "scenarios/support/judging.h"

namespace rematch::scenarios::scale_history_story {
namespace {

constexpr int kMicrobatches = 4;

/// `forwards_first`: as in a pipeline, all forwards of a step come before its first backward.
Case pipeline(bool forwards_first) {
  Case c = case_from_json(R"({"format": 1, "seed": 539, "input": [8, 4], "layers": [
    {"kind": "delayed_scaling"}, {"kind": "linear", "features": 4}],
    "plan": {"segments": [{"begin": 0, "end": 2}]},
    "protocol": {"microbatches": 4, "input_requires_grad": true}})");
  c.protocol.forwards_first = forwards_first;
  return c;
}

/// The input gradient of a microbatch is g / scale, rounded to float32, which moves it by a part of
/// 2^-24. The quotient of two of them, for two scales, is off by 2^-23; the quotients of two
/// elements differ by 2^-22 at most, of each other. The rest is slack for terms of second order.
constexpr double kRoundings = 0x1p-21;

/// The factors by which each microbatch's input gradients are multiples of the plain run's; NaN
/// where they are no multiples.
std::vector<double> factors(const Record& plain, const Record& other) {
  std::vector<double> found(kMicrobatches);
  for (std::size_t at = 0; at < plain.observations.size(); ++at) {
    const Observation& o = plain.observations[at];
    if (o.quantity != Quantity::input_gradient) continue;
    const std::vector<double> right = values_of(plain, o);
    const std::vector<double> got = values_of(other, other.observations[at]);
    double& factor = found[static_cast<std::size_t>(o.microbatch)];
    factor = got[0] / right[0];
    for (std::size_t i = 0; i < right.size(); ++i) {
      const double expected = factor * right[i];
      const bool same = std::fabs(got[i] - expected) <= kRoundings * std::fabs(expected);
      if (!same) factor = std::numeric_limits<double>::quiet_NaN();
    }
  }
  return found;
}

}  // namespace

void run(const Options& /*options*/, Report& report) {
  EngineSubject one_slot(find_fault("S9")->make());
  EngineSubject as_it_is_now(find_fault("S3")->make());
  const Case c = pipeline(true);
  tell_case(c, report);
  report.say(
      "The first layer divides by a scale that the forwards before it left, as FP8 recipes with "
      "delayed scaling do, and moves the scale on. So each microbatch has another scale, and its "
      "recomputation needs that one again.");
  const Record plain = record_of(c, false);
  const Record kept = record_of(c, one_slot);
  const auto with_engine = factors(plain, record_of(c, true));
  const auto with_slot = factors(plain, kept);
  const auto with_now = factors(plain, record_of(c, as_it_is_now));
  const auto alternating =
      factors(record_of(pipeline(false), false), record_of(pipeline(false), one_slot));
  Table& table = report.table("Gradient of each microbatch's input, relative to the plain run's",
                              {"microbatch", "engine", "one slot a layer",
                               "one slot, backward after each forward", "the scale as it is now"});
  bool last_alone = true, engine_right = true, alternating_right = true;
  for (std::size_t m = 0; m < with_engine.size(); ++m) {
    table.row("{} | {:.6f} | {:.6f} | {:.6f} | {:.6f}", m, with_engine[m], with_slot[m],
              alternating[m], with_now[m]);
    engine_right &= with_engine[m] == 1;
    alternating_right &= alternating[m] == 1;
    last_alone &= (with_slot[m] == 1) == (m + 1 == with_slot.size());
  }
  report.claim(engine_right && last_alone && alternating_right,
               "With one slot a layer, the last microbatch alone has the right gradients. Where a "
               "backward follows each forward, all have: the fault shows where another forward "
               "comes between, as in a pipeline.");
  report.claim(are_same(plain, kept, {Quantity::output, Quantity::loss, Quantity::buffer}),
               "Outputs, losses and the scale after the step are the plain run's.");
  claim_law_finds(c, one_slot, "the one slot", "input-gradients", report);
}

}  // namespace rematch::scenarios::scale_history_story
