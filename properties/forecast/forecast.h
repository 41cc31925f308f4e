#pragma once

#include <cstdint>
#include <vector>

#include "properties/case/case.h"
#include "properties/case/geometry.h"
#include "properties/layers/facts.h"
#include "properties/record/record.h"

namespace rematch {

/// Predicts the record of a case's checkpointed run by abstract interpretation of the case
/// (graph.h), never from a run of it.
struct Forecast {
  /// Expected executions of each layer for one forward with all its backwards.
  std::vector<int> executions;
  /// How many of them compute the layer's results; the others recall what a policy kept. 0 for
  /// layers that make no tensors by an op (views, in place, without effect).
  std::vector<int> computations;
  std::vector<int> plain_computations;
  /// Expected gradient-hook firings per parameter, for one forward with all its backwards.
  std::vector<int> hooks;
  /// requires_grad of output k of layer i after its first execution, checkpointed run: flags[i][k].
  std::vector<std::vector<bool>> grad_flags;
  /// The same for the outputs as the rest of the model sees them at the end: live[layers].
  std::vector<bool> output_flags;
  /// Layers whose parameters get no gradient because a reentrant segment saw no input that
  /// requires grad (the frozen first block).
  std::vector<int> frozen_layers;
  /// Bytes under the tag `saved` after one forward (loss included): checkpointed, and in the
  /// reference run (plain, with frozen_layers detached). While several forwards of a step wait for
  /// their backward, each holds as much again.
  std::int64_t saved_bytes = 0;
  std::int64_t plain_saved_bytes = 0;
  /// Bytes in host memory after one forward, if the plan offloads; none in the reference run.
  std::int64_t offloaded_bytes = 0;
  /// Live bytes at every event of the first step, and of the second, which all later ones repeat:
  /// checkpointed, and in the reference run.
  std::vector<LiveReading> live;
  std::vector<LiveReading> plain_live;
  /// Which of the checkpointed run's events is the first of a recomputation.
  std::vector<std::size_t> recomputations;
  /// false: a layer saved something under the plan of which its facts, measured in the plain run,
  /// say nothing. Then bytes, and where early stop ends a recomputation, are not known.
  bool saves_known = true;
  /// By layer: whether it is such a layer.
  std::vector<bool> saves_unknown;
  /// By layer: whether other operands or parameters of it require grad under the plan than in the
  /// plain run.
  std::vector<bool> records_otherwise;
  /// false: how many bytes are saved is not known, whatever else is.
  bool bytes_known = true;
  /// Saved tensors were measured in the plain run, which then shows what the loss saves, too.
  bool measured = false;
  /// Draws by which one execution of layer i advances its stream; 0: it draws nothing.
  std::vector<std::uint64_t> layer_draws;
  /// Draws by which one forward advances each random stream; as many streams as the case uses.
  std::vector<std::uint64_t> draws_per_forward;
  /// The same for the trial before the first step; zeros when there is none.
  std::vector<std::uint64_t> words_of_trial;
  /// Whether the trial must fail under the plan: a recomputation meets the change, and its checks
  /// are on.
  bool trial_fails = false;
  /// false when a segment that draws is recomputed without its random state: masks and gradients of
  /// the recomputation are then fresh, and value comparisons with the plain run are meaningless
  /// from the first backward on.
  bool values_comparable = true;
  /// Such a recomputation under CheckKind::values may be noticed, and then fails with a
  /// checkpoint_error.
  bool may_fail = false;
  /// exact_parameters[p] is false when the gradient of p is the same sum in another order than in
  /// the plain run. There is one cause for a parameter: it is tied, and a reentrant recomputation
  /// adds its share to the gradient by itself, so that ((old + g3) + g2) stands against (old + (g3
  /// + g2)); and one for what lies behind a value: two names of one tensor (duplicate, an identity
  /// layer) cross a reentrant boundary as two leaves, each with a sum of its own.
  std::vector<bool> exact_parameters;
  /// The same for the gradient of the model input.
  bool exact_inputs = true;
  /// From the first optimizer step that uses an inexact gradient on, everything downstream is
  /// inexact too: this is the last step (inclusive) whose other values must agree to the bit.
  int exact_until_step = kAlways;
  static constexpr int kAlways = 1 << 20;
};

/// `geometry` is validate(c); `facts`: of the subject's layers. Overwrites `forecast`. Throws
/// std::invalid_argument where the facts contradict the case.
void forecast(const Case& c, const Geometry& geometry, const Facts& facts, Forecast& forecast);
/// The most that can be promised of the plan: its exact numbers. Where the protocol has more than
/// two steps, the others are like the second.
PromiseSpec promise_of(const Forecast& forecast);
/// The forecast for the reference engine on the host.
Forecast forecast(const Case& c, const Geometry& geometry);

}  // namespace rematch
