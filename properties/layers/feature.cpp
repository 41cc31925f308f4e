#include "properties/layers/feature.h"

#include <algorithm>
#include <array>

namespace rematch {
namespace {

constexpr std::array<std::string_view, kFeatureCount> kFeatureNames{
#define REMATCH_KIND(name) #name,
    REMATCH_LAYER_KINDS(REMATCH_KIND)
#undef REMATCH_KIND
        "images",
    "sequences",
    "one_row",
    "multi_output_segment",
    "unused_output",
    "long_skip",
    "tied_weight",
    "tied_three_times",
    "same_tensor_twice",
    "frozen_input",
    "trainable_input",
    "several_inputs",
    "some_inputs_frozen",
    "frozen_parameters",
    "frozen_prefix",
    "frozen_first_block",
    "nothing_trains",
    "stateful_layer",
    "advancing_state",
    "fp8",
    "in_place",
    "in_place_at_segment_end",
    "odd_size",
    "nested_2",
    "nested_3",
    "nested_4",
    "reentrant",
    "non_reentrant",
    "mixed_variants",
    "early_stop",
    "early_stop_off",
    "preserve_rng_off",
    "fresh_draws",
    "no_check",
    "metadata_check",
    "values_check",
    "selective",
    "kept_draw_before_draw",
    "nested_inputs",
    "keyword_inputs",
    "emptied_inputs",
    "nested_outputs",
    "named_stream",
    "autocast",
    "autocast_backward",
    "cast_cache_off",
    "cast_weight_shared",
    "offload",
    "draws_in_checkpointed_segment",
    "two_drawing_segments",
    "sequential",
    "explicit_segments",
    "last_stored",
    "last_checkpointed",
    "segments_1",
    "several_steps",
    "accumulation",
    "forwards_first",
    "prior_gradients",
    "gradients_kept",
    "retain_graph",
    "partial_backwards",
    "several_losses",
    "clipping",
    "loss_scaling",
    "eval_mode",
    "eval_layer",
    "injected_failure",
    "failure_in_segment",
    "reevaluate",
    "sgd",
    "adam",
    "momentum",
    "mse",
    "cross_entropy",
    "float32",
    "float64",
    "small_integers",
    "more_than_a_few",
};

}  // namespace

std::string_view to_string(Feature feature) {
  return kFeatureNames[static_cast<std::size_t>(feature)];
}

std::optional<Feature> feature_named(std::string_view name) {
  const auto found = std::find(kFeatureNames.begin(), kFeatureNames.end(), name);
  if (found == kFeatureNames.end()) return std::nullopt;
  return static_cast<Feature>(found - kFeatureNames.begin());
}

}  // namespace rematch
