#include "properties/forecast/forecast.h"

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <string>

#include "properties/case/features.h"
#include "properties/case/rules.h"
#include "properties/forecast/engine_facts.h"
#include "properties/forecast/protocol.h"

namespace rematch {
namespace {

bool checks_values(std::span<const SegmentSpec> segments) {
  return std::any_of(segments.begin(), segments.end(), [](const SegmentSpec& s) {
    return (s.choice.variant == Variant::non_reentrant &&
            s.choice.determinism == CheckKind::values) ||
           checks_values(s.nested);
  });
}

/// The draws of an execution: its elements, rounded up to whole Philox blocks of 4.
std::uint64_t words_of(const LayerFacts& facts) {
  return (static_cast<std::uint64_t>(facts.drawn) + 3) / 4 * 4;
}

void note_words(Forecast& f, const Case& c, const Facts& facts) {
  f.layer_draws.clear();
  f.draws_per_forward.assign(static_cast<std::size_t>(streams_of(c)), 0);
  for (std::size_t i = 0; i < c.layers.size(); ++i) {
    f.layer_draws.push_back(words_of(facts.layers[i]));
    f.draws_per_forward[static_cast<std::size_t>(c.layers[i].stream)] += f.layer_draws.back();
  }
}

/// Whether a segment around `layer`, of any level, was told not to compare.
bool unchecked_around(std::span<const SegmentSpec> segments, int layer) {
  return std::any_of(segments.begin(), segments.end(), [&](const SegmentSpec& s) {
    return s.begin <= layer && layer < s.end &&
           (s.choice.determinism == CheckKind::none || unchecked_around(s.nested, layer));
  });
}

/// Whether the only segment around `layer` checks values, among them all that it recomputes.
bool values_checked_around(std::span<const SegmentSpec> segments, int layer) {
  return std::any_of(segments.begin(), segments.end(), [&](const SegmentSpec& s) {
    return s.begin <= layer && layer < s.end && s.choice.determinism == CheckKind::values &&
           s.nested.empty() && s.choice.keep.empty();
  });
}

void note_trial(Forecast& f, const Case& c, const Geometry& g,
                const std::vector<SegmentSpec>& segments) {
  const InjectedFailure& m = c.protocol.failure;
  const auto layer_of_it = static_cast<std::size_t>(m.layer);
  const auto recomputed = [&](int layer) {
    return f.executions[static_cast<std::size_t>(layer)] > 1;
  };
  f.trial_fails = false;
  f.words_of_trial.assign(f.draws_per_forward.size(), 0);
  switch (m.kind) {
    case FailureKind::none:
      return;
    case FailureKind::input_changed:
      // A saved input is held to its version whatever was agreed.
      f.trial_fails = !segments.empty() && segments[0].begin == 0 && recomputed(0);
      break;
    case FailureKind::weight_changed:
    case FailureKind::op_exchanged:
      f.trial_fails = recomputed(m.layer) && !unchecked_around(segments, m.layer);
      break;
    case FailureKind::shape_changed: {
      const Shape& x = g.outputs[layer_of_it][0];
      f.trial_fails = recomputed(m.layer) && !unchecked_around(segments, m.layer) &&
                      x[x.rank() - 2] != x[x.rank() - 1];
      break;
    }
    case FailureKind::value_changed:
      // An activation whose operand requires no grad saves nothing.
      f.trial_fails = recomputed(m.layer) && values_checked_around(segments, m.layer) &&
                      f.grad_flags[layer_of_it][0];
      break;
    case FailureKind::recomputation_throws:
      f.trial_fails = recomputed(m.layer);
      break;
    case FailureKind::forward_throws:
      f.trial_fails = true;
      for (int i = 0; i < m.layer; ++i) {
        const auto layer = static_cast<std::size_t>(i);
        f.words_of_trial[static_cast<std::size_t>(c.layers[layer].stream)] += f.layer_draws[layer];
      }
      return;
    case FailureKind::graph_dropped:
      break;
  }
  f.words_of_trial = f.draws_per_forward;
}

/// Facts may come from a subject, so they are checked.
void check_facts(const Case& c, const Geometry& geometry, const Facts& facts) {
  using What = SavedTensorFact::What;
  using When = SavedTensorFact::When;
  const auto fail = [](std::size_t layer, const char* what) {
    throw std::invalid_argument("[facts] layer " + std::to_string(layer) + ": " + what);
  };
  if (facts.layers.size() != c.layers.size()) {
    throw std::invalid_argument("[facts] expected facts for " + std::to_string(c.layers.size()) +
                                " layers, got " + std::to_string(facts.layers.size()));
  }
  for (std::size_t i = 0; i < facts.layers.size(); ++i) {
    const LayerFacts& f = facts.layers[i];
    const auto within = [](int first, int count, std::size_t size) {
      return first >= 0 && count >= 0 && static_cast<std::size_t>(first) <= size &&
             static_cast<std::size_t>(count) <= size - static_cast<std::size_t>(first);
    };
    if (!within(f.first_saved, f.saved, facts.saved_tensors.size()) ||
        !within(f.first_own, f.own, facts.own_bytes.size())) {
      fail(i, "a range that does not exist");
    }
    if (f.drawn < 0 || f.workspace < 0 || f.state_bytes < 0)
      fail(i, "a negative number of elements or bytes");
    const int operands = 1 + static_cast<int>(c.layers[i].from.size());
    const int parameters = static_cast<int>(geometry.layer_parameters[i].size());
    const int outputs = static_cast<int>(geometry.outputs[i].size());
    for (const SavedTensorFact& s : facts.saved_by(f)) {
      const int things[] = {operands, outputs, parameters, f.own, f.state_bytes > 0 ? 1 : 0};
      if (s.index < 0 || s.index >= things[static_cast<std::size_t>(s.what)]) {
        fail(i, "saves an operand, output, parameter, own tensor or state that does not exist");
      }
      const int asked = s.when == When::operand_requires_grad     ? operands
                        : s.when == When::parameter_requires_grad ? parameters
                                                                  : s.of + 1;
      if (s.of < 0 || s.of >= asked)
        fail(i, "depends on an operand or parameter that does not exist");
      if (f.aliases_operand && !f.identity && s.what == What::own) {
        fail(i, "has an own tensor, but computes nothing");
      }
    }
    for (const std::int64_t bytes : facts.own_of(f)) {
      if (bytes < 0) fail(i, "a negative number of elements or bytes");
    }
  }
}

/// Where gradients are the same sums as in the plain run, in the same order.
void note_exactness(Forecast& f, const Trace& checkpointed, const Trace& plain,
                    std::size_t parameters) {
  f.exact_until_step = Forecast::kAlways;
  f.exact_inputs = checkpointed.input_gradients == plain.input_gradients;
  f.exact_parameters.assign(parameters, true);
  for (std::size_t i = 0; i < plain.parameter_gradients.size(); ++i) {
    if (checkpointed.parameter_gradients[i] == plain.parameter_gradients[i]) continue;
    f.exact_parameters[i % parameters] = false;
    f.exact_until_step = std::min(f.exact_until_step, static_cast<int>(i / parameters));
  }
}

}  // namespace

void forecast(const Case& c, const Geometry& geometry, const Facts& facts, Forecast& f) {
  thread_local SymbolicProtocol protocol;
  thread_local Trace trace;
  thread_local Trace plain;
  check_facts(c, geometry, facts);
  const std::vector<SegmentSpec> segments = segments_of(c);
  f.frozen_layers = frozen_layers(c, geometry);
  protocol.bind(c, geometry, facts);
  protocol.run({}, f.frozen_layers, false, plain);
  protocol.run(segments, {}, c.plan.offload, trace, facts.measured ? &plain : nullptr);

  // Swapped, so that memory goes back and forth instead of being asked for again.
  f.executions.swap(trace.executions);
  f.computations.swap(trace.computations);
  f.plain_computations.swap(plain.computations);
  f.hooks.swap(trace.hooks);
  f.grad_flags.swap(trace.grad_flags);
  f.output_flags.swap(trace.output_flags);
  f.live.swap(trace.live);
  f.plain_live.swap(plain.live);
  f.recomputations.swap(trace.recomputations);
  f.saved_bytes = trace.saved_bytes;
  f.offloaded_bytes = trace.offloaded_bytes;
  f.plain_saved_bytes = plain.saved_bytes;
  f.saves_unknown.swap(trace.saves_unknown);
  f.records_otherwise.assign(c.layers.size(), false);
  for (std::size_t i = 0; i < c.layers.size(); ++i) {
    f.records_otherwise[i] = trace.recorded_with[i] != plain.recorded_with[i];
  }
  f.saves_known = !facts.saves_unknown && !trace.facts_unknown;
  f.bytes_known = !facts.bytes_unknown;
  f.measured = facts.measured;
  // Recomputation depends on what is saved.
  const bool may_draw_afresh = !f.saves_known && !preserves_rng_everywhere(c);
  f.values_comparable = !trace.drew_afresh && !may_draw_afresh;
  f.may_fail = !f.values_comparable && checks_values(segments);
  note_words(f, c, facts);
  note_trial(f, c, geometry, segments);
  note_exactness(f, trace, plain, geometry.parameters.size());
}

PromiseSpec promise_of(const Forecast& f) {
  PromiseSpec promise{0, 0};
  for (const LiveReading& r : f.live) promise.peak_bytes = std::max(promise.peak_bytes, r.peak);
  for (const int runs : f.executions) promise.recomputations += runs - 1;
  return promise;
}

Forecast forecast(const Case& c, const Geometry& geometry) {
  Facts facts;
  engine_facts(c, geometry, true, facts);
  Forecast f;
  forecast(c, geometry, facts, f);
  return f;
}

}  // namespace rematch
