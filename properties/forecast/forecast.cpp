#include "properties/forecast/forecast.h"

#include <algorithm>
#include <cstddef>
#include <limits>

#include "properties/forecast/symbolic_memory.h"
#include "properties/forecast/symbolic_run.h"

namespace rematch {
namespace {

constexpr int kNever = std::numeric_limits<int>::max();

bool checks_values(std::span<const SegmentSpec> segments) {
  return std::any_of(segments.begin(), segments.end(), [](const SegmentSpec& s) {
    return (s.choice.variant == Variant::non_reentrant &&
            s.choice.determinism == CheckKind::values) ||
           checks_values(s.nested);
  });
}

void note_counts(Forecast& f, const SymbolicRun& run, int backwards) {
  // The run made one forward and one backward; every further backward replays the same again.
  f.executions = run.executions();
  for (int& count : f.executions) count = 1 + (count - 1) * backwards;
  f.computations = run.computations();
  for (int& count : f.computations) {
    if (count > 0) count = 1 + (count - 1) * backwards;
  }
  f.hooks = run.hooks();
  for (int& count : f.hooks) count *= backwards;
}

void note_flags(Forecast& f, const SymbolicRun& run, const Geometry& geometry) {
  f.grad_flags.resize(geometry.outputs.size());
  for (std::size_t i = 0; i < geometry.outputs.size(); ++i) {
    for (std::size_t k = 0; k < geometry.outputs[i].size(); ++k) {
      f.grad_flags[i].push_back(run.flag({static_cast<int>(i), static_cast<int>(k)}));
    }
  }
  for (const char flag : run.output_flags()) f.output_flags.push_back(flag != 0);
}

void note_words(Forecast& f, const Case& c, const SymbolicRun& run) {
  f.words_per_forward.assign(static_cast<std::size_t>(streams_of(c)), 0);
  for (const LayerRule& rule : run.rules()) {
    f.layer_words.push_back(rule.words);
    f.words_per_forward[static_cast<std::size_t>(rule.stream)] += rule.words;
  }
}

/// Whether a segment around `layer`, of any level, was told not to compare.
bool unchecked_around(std::span<const SegmentSpec> segments, int layer) {
  return std::any_of(segments.begin(), segments.end(), [&](const SegmentSpec& s) {
    return s.begin <= layer && layer < s.end &&
           (s.choice.determinism == CheckKind::none || unchecked_around(s.nested, layer));
  });
}

void note_trial(Forecast& f, const Case& c, const std::vector<SegmentSpec>& segments) {
  const MishapSpec& m = c.protocol.mishap;
  const auto replayed = [&](int layer) {
    return f.executions[static_cast<std::size_t>(layer)] > 1;
  };
  f.words_of_trial.assign(f.words_per_forward.size(), 0);
  switch (m.kind) {
    case MishapKind::none:
      return;
    case MishapKind::input_changed:
      // A saved input is held to its version whatever was agreed.
      f.trial_fails = !segments.empty() && segments[0].begin == 0 && replayed(0);
      break;
    case MishapKind::weight_changed:
    case MishapKind::op_exchanged:
      f.trial_fails = replayed(m.layer) && !unchecked_around(segments, m.layer);
      break;
    case MishapKind::replay_throws:
      f.trial_fails = replayed(m.layer);
      break;
    case MishapKind::forward_throws:
      f.trial_fails = true;
      for (int i = 0; i < m.layer; ++i) {
        const auto layer = static_cast<std::size_t>(i);
        f.words_of_trial[static_cast<std::size_t>(c.layers[layer].stream)] += f.layer_words[layer];
      }
      return;
    case MishapKind::graph_dropped:
      break;
  }
  f.words_of_trial = f.words_per_forward;
}

/// First step in which the gradient of a parameter is summed in another order than in the plain
/// run, given whether a single backward does so on an empty gradient and on an older one. Within a
/// step the first backward finds the gradient as the step before left it, all others find it
/// filled; what holds for one backward on a filled gradient holds for each.
int first_inexact_step(const ProtocolSpec& p, bool exact_on_empty, bool exact_on_older) {
  const bool several = p.microbatches * static_cast<std::int64_t>(p.backwards) > 1;
  const auto exact = [&](bool starts_empty) {
    return (starts_empty ? exact_on_empty : exact_on_older) && (!several || exact_on_older);
  };
  if (!exact(!p.prior_gradients)) return 0;
  if (p.steps > 1 && !exact(p.zero_grad)) return 1;
  return kNever;
}

}  // namespace

Forecast forecast(const Case& c, const Geometry& geometry, bool on_device) {
  thread_local SymbolicRun run;
  thread_local SymbolicMemory memory;
  thread_local std::vector<std::uint64_t> on_empty;
  thread_local std::vector<std::uint64_t> on_older;
  Forecast f;
  const std::vector<SegmentSpec> segments = segments_of(c);

  run.bind(c, geometry);
  run.forward(segments, {}, c.plan.offload);
  run.backward();
  note_counts(f, run, c.protocol.backwards);
  note_flags(f, run, geometry);
  note_words(f, c, run);
  note_trial(f, c, segments);
  f.frozen_layers = run.frozen();
  f.saved_bytes = run.saved_bytes();
  f.offloaded_bytes = run.offloaded_bytes();
  f.values_comparable = !run.drew_afresh();
  f.may_fail = run.drew_afresh() && checks_values(segments);
  on_empty = run.gradients_on_empty();
  on_older = run.gradients_on_older();
  const std::uint64_t input_gradient = run.input_gradient();

  memory.bind(c, geometry, run.rules(), !on_device);
  // As many events as a case of either mix has, or nearly.
  f.live.reserve(128);
  f.plain_live.reserve(128);
  memory.run(segments, {}, c.plan.offload, f.live);
  f.replays = memory.replays();
  memory.run({}, f.frozen_layers, false, f.plain_live);

  run.forward({}, f.frozen_layers, false);
  run.backward();
  f.plain_saved_bytes = run.saved_bytes();
  f.exact_inputs = input_gradient == run.input_gradient();
  f.exact_parameters.resize(geometry.parameters.size());
  for (std::size_t p = 0; p < geometry.parameters.size(); ++p) {
    const int step = first_inexact_step(c.protocol, on_empty[p] == run.gradients_on_empty()[p],
                                        on_older[p] == run.gradients_on_older()[p]);
    f.exact_parameters[p] = step == kNever;
    f.exact_until_step = std::min(f.exact_until_step, step);
  }
  return f;
}

}  // namespace rematch
