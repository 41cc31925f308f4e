#include <fmt/format.h>

#include "properties/hunt/gather.h"
#include "scenarios/support/judging.h"

namespace rematch::scenarios::frozen_embeddings_story {
namespace {

constexpr int kHead = 7;

/// An embedding, two blocks of a frozen layer, tanh and an adapter, and a head: only the adapters
/// are to be trained.
Case adapters(Variant variant) {
  Case c = case_from_json(R"({"format": 1, "seed": 23170, "input": [8, 16], "layers": [
    {"kind": "linear", "features": 16, "frozen": true},
    {"kind": "linear", "features": 16, "frozen": true}, {"kind": "tanh"},
    {"kind": "linear", "features": 16},
    {"kind": "linear", "features": 16, "frozen": true}, {"kind": "tanh"},
    {"kind": "linear", "features": 16},
    {"kind": "linear", "features": 4, "frozen": true}]})");
  for (const int begin : {1, 4}) add_segment(c, begin, begin + 3, variant);
  return c;
}

struct Outcome {
  int adapters = 0;             ///< Their parameters that get a gradient, of 4.
  int head = 0;                 ///< The same for the head, of 2.
  bool differentiable = false;  ///< The loss requires grad.
  bool kept = false;            ///< Every law.
};

Outcome outcome_of(const Case& c, bool checkpointed) {
  EngineSubject engine;
  Workspace workspace;
  Outcome outcome;
  outcome.kept = judge_case(c, engine, workspace).kept();
  const Geometry geometry = validate(c);
  for (const Observation& o : record_of(c, checkpointed).observations) {
    if (o.quantity == Quantity::loss) outcome.differentiable = o.requires_grad;
    if (o.quantity != Quantity::parameter_gradient || !o.present) continue;
    const int layer = geometry.parameters[static_cast<std::size_t>(o.index)].layer;
    ++(layer == kHead ? outcome.head : outcome.adapters);
  }
  return outcome;
}

}  // namespace

void run(const Options& /*options*/, Report& report) {
  const Case reentrant = adapters(Variant::reentrant);
  Case input = reentrant;
  input.protocol.input_requires_grad = true;
  Case head = reentrant;
  head.layers[kHead].frozen = false;
  const Case non_reentrant = adapters(Variant::non_reentrant);
  const Outcome plain = outcome_of(reentrant, false);
  const Outcome frozen = outcome_of(reentrant, true);
  const Outcome with_head = outcome_of(head, true);
  const Outcome thawed = outcome_of(input, true);
  const Outcome other = outcome_of(non_reentrant, true);
  tell_case(reentrant, report);
  Table& table = report.table("Parameters that get a gradient",
                              {"run", "of the adapters", "of the head", "the loss requires grad"});
  const auto row = [&](const char* name, const Outcome& o) {
    table.row("{} | {} of 4 | {} of 2 | {}", name, o.adapters, o.head, yes(o.differentiable));
  };
  row("plain", plain);
  row("reentrant", frozen);
  row("reentrant, and the head is trained, too", with_head);
  row("reentrant, and what comes out of the embedding requires grad", thawed);
  row("non-reentrant", other);
  report.claim(
      plain.adapters == 4 && frozen.adapters == 0,
      "Plain, {} of 4 parameters are trained; with reentrant checkpoints {} are. The adapters "
      "stand inside checkpoints, and a frozen embedding gives these no input that requires grad.",
      plain.adapters, frozen.adapters);
  report.claim(
      !frozen.differentiable && with_head.differentiable && with_head.head == 2 &&
          with_head.adapters == 0,
      "With everything else frozen, the loss itself requires no grad, and nobody can call "
      "backward() on it. With a trained head the call goes through, and trains the head alone.");
  report.claim(thawed.adapters == 4 && other.adapters == 4,
               "Two ways out, with 4 of 4 each: let the embedding's output require grad (what "
               "`enable_input_require_grads()` is for), or the non-reentrant variant.");
  report.claim(frozen.kept && with_head.kept && thawed.kept && other.kept,
               "No law is broken in any of these runs: the forecast knows which layers the "
               "reentrant variant freezes. A fault it is when another variant was asked for.");
  // A library that was asked for the non-reentrant variant and takes the other one.
  EngineSubject overridden([](const Function& f, const Tensors& in, CheckpointOptions options) {
    options.reentrant = true;
    return checkpoint(f, in, options);
  });
  claim_law_finds(non_reentrant, overridden,
                  "a wrapper that checkpoints reentrantly although it was asked not to",
                  "absent-gradients", report);
}

}  // namespace rematch::scenarios::frozen_embeddings_story
