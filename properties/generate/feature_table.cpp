#include <algorithm>
#include <array>

#include "properties/generate/features.h"

namespace rematch {
namespace {

struct Row {
  Feature feature;
  std::string_view name;
  /// Promised percentages of the mixes, about half of what 100,000 cases measured.
  double standard;
  double wide;
};

constexpr std::array<Row, kFeatureCount> kRows{{
    {Feature::linear, "linear", 39, 25},
    {Feature::conv2d, "conv2d", 11, 15},
    {Feature::max_pool2d, "max_pool2d", 11, 4},
    {Feature::avg_pool2d, "avg_pool2d", 0, 4},
    {Feature::batch_norm, "batch_norm", 11, 11},
    {Feature::layer_norm, "layer_norm", 14, 13},
    {Feature::relu, "relu", 26, 24},
    {Feature::gelu, "gelu", 14, 7},
    {Feature::tanh, "tanh", 14, 7},
    {Feature::sigmoid, "sigmoid", 0, 7},
    {Feature::softmax, "softmax", 0, 5.5},
    {Feature::dropout, "dropout", 27, 19},
    {Feature::rrelu, "rrelu", 0, 7.5},
    {Feature::gaussian_noise, "gaussian_noise", 0, 7.5},
    {Feature::flatten, "flatten", 25, 16},
    {Feature::add, "add", 0, 18},
    {Feature::concat, "concat", 0, 10},
    {Feature::split, "split", 0, 10},
    {Feature::duplicate, "duplicate", 0, 11},
    {Feature::multi_output_segment, "multi_output_segment", 0, 21},
    {Feature::unused_output, "unused_output", 0, 18},
    {Feature::long_skip, "long_skip", 0, 3},
    {Feature::tied_weight, "tied_weight", 0, 7.5},
    {Feature::tied_three_times, "tied_three_times", 0, 1.5},
    {Feature::same_tensor_twice, "same_tensor_twice", 0, 18},
    {Feature::frozen_input, "frozen_input", 0, 15},
    {Feature::frozen_prefix, "frozen_prefix", 0, 3.5},
    {Feature::frozen_first_block, "frozen_first_block", 0, 6.5},
    {Feature::stateful_layer, "stateful_layer", 8.5, 8.5},
    {Feature::in_place, "in_place", 0, 5.5},
    {Feature::in_place_at_segment_end, "in_place_at_segment_end", 0, 2},
    {Feature::odd_size, "odd_size", 7.5, 10},
    {Feature::nested_2, "nested_2", 0, 15},
    {Feature::nested_3, "nested_3", 0, 7.5},
    {Feature::nested_4, "nested_4", 0, 3},
    {Feature::reentrant, "reentrant", 18, 27},
    {Feature::non_reentrant, "non_reentrant", 18, 27},
    {Feature::mixed_variants, "mixed_variants", 0, 6.5},
    {Feature::early_stop_off, "early_stop_off", 0, 10},
    {Feature::preserve_rng_off, "preserve_rng_off", 0, 19},
    {Feature::fresh_draws, "fresh_draws", 0, 0.5},
    {Feature::values_check, "values_check", 0, 5.5},
    {Feature::selective, "selective", 0, 5},
    {Feature::kept_draw_before_draw, "kept_draw_before_draw", 0, 0.6},
    {Feature::named_stream, "named_stream", 0, 5},
    {Feature::autocast, "autocast", 0, 5.5},
    {Feature::autocast_backward, "autocast_backward", 0, 2},
    {Feature::cast_cache_off, "cast_cache_off", 0, 1.5},
    {Feature::cast_weight_shared, "cast_weight_shared", 0, 1},
    {Feature::offload, "offload", 0, 5.5},
    {Feature::draws_in_checkpointed_segment, "draws_in_checkpointed_segment", 17, 18},
    {Feature::two_drawing_segments, "two_drawing_segments", 4, 3.5},
    {Feature::sequential, "sequential", 100, 15},
    {Feature::explicit_segments, "explicit_segments", 0, 34},
    {Feature::last_stored, "last_stored", 100, 9},
    {Feature::last_checkpointed, "last_checkpointed", 0, 6},
    {Feature::segments_1, "segments_1", 12, 3},
    {Feature::several_steps, "several_steps", 0, 19},
    {Feature::accumulation, "accumulation", 0, 17},
    {Feature::forwards_first, "forwards_first", 0, 8.5},
    {Feature::prior_gradients, "prior_gradients", 0, 7},
    {Feature::gradients_kept, "gradients_kept", 0, 5},
    {Feature::retain_graph, "retain_graph", 0, 6.5},
    {Feature::eval_mode, "eval_mode", 0, 5.5},
    {Feature::mishap, "mishap", 0, 7},
    {Feature::mishap_in_segment, "mishap_in_segment", 0, 2},
    {Feature::reevaluate, "reevaluate", 0, 9.5},
    {Feature::adam, "adam", 0, 15},
    {Feature::momentum, "momentum", 0, 12},
    {Feature::cross_entropy, "cross_entropy", 0, 12},
    {Feature::float64, "float64", 0, 14},
    {Feature::small_integers, "small_integers", 0, 7.5},
}};

constexpr bool in_order() {
  std::size_t i = 0;
  return std::all_of(kRows.begin(), kRows.end(),
                     [&](const Row& row) { return static_cast<std::size_t>(row.feature) == i++; });
}
static_assert(in_order());

const Row& row_of(Feature feature) { return kRows[static_cast<std::size_t>(feature)]; }

}  // namespace

std::string_view to_string(Feature feature) { return row_of(feature).name; }

double floor(Mix mix, Feature feature) {
  const Row& row = row_of(feature);
  return (mix == Mix::standard ? row.standard : row.wide) / 100;
}

}  // namespace rematch
