#include <fmt/format.h>

#include "engine/ops/arithmetic.h"
#include "engine/ops/moe.h"
#include "scenarios/support/judging.h"
#include "scenarios/support/step.h"

namespace rematch::scenarios::moe_routing_story {
namespace {

constexpr std::int64_t kRows = 96;
constexpr std::int64_t kWidth = 8;
constexpr std::int64_t kExperts = 4;
constexpr double kJitter = 0.5;

using Values = std::vector<double>;

struct Step {
  Values output;
  Values load;                       ///< Rows that each expert was given.
  std::vector<std::byte> gradients;  ///< Router's and experts'.
  std::string error;
};

Tensor uniform(const Shape& shape, std::uint64_t seed) {
  Generator g{seed, 0, 0};
  return uniform_parameter(shape, 0.35, g);
}

/// A step that begins `skipped` forwards after the generator's beginning. `options`: of the
/// checkpoint; nullptr: none.
Step train_step(const CheckpointOptions* options, int skipped = 0) {
  const AmbientScope scope(std::make_shared<Ledger>());
  const Tensor router = uniform({kExperts, kWidth}, 1);
  const Tensor experts = uniform({kExperts, kWidth, kWidth}, 2);
  const Tensor x = uniform({kRows, kWidth}, 3);
  const Tensor weights = uniform({kRows, kWidth}, 4).set_requires_grad(false);
  Tensor load = Tensor::zeros({kExperts}, DType::float32);
  const Function region = [&](const Tensors& in) {
    return Tensors{moe(in[0], router, experts, load, {.top = 1, .jitter = kJitter})};
  };
  for (int i = 0; i < skipped; ++i) region({x});
  load = Tensor::zeros({kExperts}, DType::float32);
  const Tensor y = options != nullptr ? checkpoint(region, {x}, *options)[0] : region({x})[0];
  Step step{y.to_vector(), load.to_vector(), {}, {}};
  try {
    backward(sum(mul(y, weights)));
    step.gradients = bits_of(gradients_of(Tensors{router, experts}));
  } catch (const CheckpointError& e) {
    step.error = e.what();
  }
  return step;
}

}  // namespace

void run(const Options& /*options*/, Report& report) {
  const CheckpointOptions restored;
  const CheckpointOptions forgotten{.preserve_rng = false};
  const CheckpointOptions compared{.preserve_rng = false, .determinism = DeterminismCheck::values};
  const Step plain = train_step(nullptr);
  const Step next = train_step(nullptr, 1);
  const Step right = train_step(&restored);
  const Step wrong = train_step(&forgotten);
  report.say(
      "{} rows, each of which a router sends to the likeliest of {} experts, with jitter on the "
      "router's logits: uniform noise below {}, drawn in the forward.",
      kRows, kExperts, kJitter);
  Table& table =
      report.table("Rows that each expert is given", {"expert", "forward", "drawn once more"});
  int moved = 0;
  for (std::size_t e = 0; e < plain.load.size(); ++e) {
    table.row({e, plain.load[e], next.load[e]});
    if (plain.load[e] != next.load[e]) ++moved;
  }
  report.claim(
      right.gradients == plain.gradients && right.load == plain.load,
      "Where the recomputation begins with the generator as its forward found it, it routes as the "
      "forward did. Gradients are the plain run's to the bit, and rows are counted once.");
  report.claim(moved > 0 && wrong.output == plain.output && wrong.load == plain.load &&
                   wrong.gradients == next.gradients && wrong.gradients != plain.gradients,
               "Where it goes on drawing, {} of {} experts have another number of rows the second "
               "time. A layer that gathers rows for each expert then fails, because shapes differ. "
               "If they happen to agree, or are padded as here, it does not: the output is right, "
               "and the gradients are those of the other routing, to the bit.",
               moved, kExperts);
  const std::string error = train_step(&compared).error;
  report.claim(!error.empty(),
               "A check of what is recomputed, bit by bit, ends the backward: `" + error + "`");

  const Case c = case_from_json(R"({"format": 1, "seed": 1117, "input": [8, 4], "layers": [
    {"kind": "moe", "experts": 4, "p": 0.5}, {"kind": "linear", "features": 2}],
    "plan": {"segments": [{"begin": 0, "end": 2}]}})");
  claim_law_finds(c, "R1", "a wrapper that does not restore the generator", "parameter-gradients",
                  report);
}

}  // namespace rematch::scenarios::moe_routing_story
