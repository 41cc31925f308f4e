#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "properties/layers/enum_set.h"
#include "properties/layers/kinds.h"

namespace rematch {

/// What a case exercises, and what a subject may lack (properties/record/subject.h). The first
/// block has one feature for each layer kind, in its order.
enum class Feature : std::uint8_t {
#define REMATCH_KIND(name) name,
  REMATCH_LAYER_KINDS(REMATCH_KIND)
#undef REMATCH_KIND
  /// The model input has rank 4.
  images,
  /// The model input has rank 3, or is tokens of rank 2.
  sequences,
  /// A batch of one.
  one_row,
  /// More than one value crosses the end of a checkpointed segment.
  multi_output_segment,
  /// An output 1 that no layer uses.
  unused_output,
  /// A value is used by a layer at least three parts of the plan after the one that made it
  /// (parts: top-level segments and the plain runs of layers between them).
  long_skip,
  tied_weight,
  /// One parameter is used by three layers or more.
  tied_three_times,
  /// One value is both operands of a layer, or crosses a segment's boundary twice.
  same_tensor_twice,
  /// The model input does not require grad.
  frozen_input,
  trainable_input,
  /// The model has further inputs, which segments may take.
  several_inputs,
  /// Some model inputs require grad, others do not.
  some_inputs_frozen,
  frozen_parameters,
  /// The first layers with parameters are frozen, a later one is not.
  frozen_prefix,
  /// A reentrant segment with trainable parameters sees no input that requires grad.
  frozen_first_block,
  /// No parameter is trainable, or there is none.
  nothing_trains,
  /// batch_norm, in train mode, in a checkpointed segment.
  stateful_layer,
  /// A layer's forward reads a state that it moves on.
  advancing_state,
  /// delayed_scaling that rounds to float8.
  fp8,
  in_place,
  in_place_at_segment_end,
  /// A random layer draws a number of elements that is not a multiple of 4.
  odd_size,
  nested_2,
  nested_3,
  nested_4,
  reentrant,
  non_reentrant,
  mixed_variants,
  early_stop,
  early_stop_off,
  preserve_rng_off,
  /// preserve_rng is off for a segment that draws: the recomputation's masks are fresh.
  fresh_draws,
  no_check,
  metadata_check,
  values_check,
  /// A policy keeps the results of an op.
  selective,
  /// Of an op that draws, before another that draws in the same segment and is not kept.
  kept_draw_before_draw,
  // Of subjects alone, as segments of the engine take and return lists of tensors.
  /// A segment is handed a dictionary.
  nested_inputs,
  /// A segment is handed tensors by keyword.
  keyword_inputs,
  /// A segment is handed a list, and empties it.
  emptied_inputs,
  /// A segment returns a dictionary.
  nested_outputs,
  /// A layer draws from another stream than the default one.
  named_stream,
  /// linear or conv2d in bfloat16, or a custom layer where they would be.
  autocast,
  /// Backwards run in an autocast scope, too.
  autocast_backward,
  cast_cache_off,
  /// One weight is cast for two layers or more.
  cast_weight_shared,
  offload,
  draws_in_checkpointed_segment,
  /// At least two top-level segments draw.
  two_drawing_segments,
  sequential,
  explicit_segments,
  last_stored,
  last_checkpointed,
  /// sequential with one segment.
  segments_1,
  several_steps,
  accumulation,
  forwards_first,
  prior_gradients,
  gradients_kept,
  retain_graph,
  partial_backwards,
  several_losses,
  clipping,
  loss_scaling,
  eval_mode,
  /// In a model that trains, one of the harness's own.
  eval_layer,
  /// A trial goes wrong before the first step.
  injected_failure,
  /// In a checkpointed segment.
  failure_in_segment,
  reevaluate,
  sgd,
  adam,
  momentum,
  mse,
  cross_entropy,
  float32,
  float64,
  small_integers,
  /// More layers, nesting, streams, live values, uses of a weight, forwards or backwards than other
  /// cases have, or a tensor above 1 MiB.
  more_than_a_few,
};

inline constexpr std::size_t kFeatureCount = static_cast<std::size_t>(Feature::more_than_a_few) + 1;
using FeatureSet = EnumSet<Feature, kFeatureCount>;

/// That layers of the kind occur.
constexpr Feature feature_of(LayerKind kind) { return static_cast<Feature>(kind); }

/// "long_skip".
std::string_view to_string(Feature feature);
/// nullopt when there is none of that name.
std::optional<Feature> feature_named(std::string_view name);

}  // namespace rematch
