#include <algorithm>
#include <array>

#include "properties/generate/mix.h"

namespace rematch {
namespace {

using enum Feature;

struct Row {
  Feature feature;
  /// Promised percentages of the mixes, about half of what 100,000 cases measured.
  double standard;
  double wide;
  /// A case can have the feature only if it may have all of these, and one of those (if there are
  /// any).
  FeatureSet all_of = {};
  FeatureSet one_of = {};
};

constexpr std::array<Row, kFeatureCount> kRows{{
    {linear, 39, 25},
    {conv2d, 11, 15, {images}},
    {max_pool2d, 11, 4, {images}},
    {avg_pool2d, 0, 4, {images}},
    {batch_norm, 11, 11},
    {layer_norm, 14, 13},
    {relu, 26, 24},
    {gelu, 14, 7},
    {tanh, 14, 7},
    {sigmoid, 0, 7},
    {softmax, 0, 5.5},
    {dropout, 27, 19},
    {rrelu, 0, 7.5},
    {gaussian_noise, 0, 7.5},
    {flatten, 25, 16},
    {add, 0, 18},
    {concat, 0, 10},
    {split, 0, 10},
    {duplicate, 0, 11},
    {images, 25, 25},
    {multi_output_segment, 0, 21, {}, {add, concat, split, duplicate}},
    {unused_output, 0, 18, {}, {split, duplicate}},
    {long_skip, 0, 3, {}, {add, concat}},
    {tied_weight, 0, 7.5, {}, {linear, conv2d}},
    {tied_three_times, 0, 1.5, {tied_weight}},
    {same_tensor_twice, 0, 18, {}, {add, concat, duplicate}},
    {frozen_input, 0, 15},
    {trainable_input, 100, 35},
    {frozen_parameters, 0, 8.5, {}, {linear, conv2d, batch_norm, layer_norm}},
    {frozen_prefix, 0, 3.5, {frozen_parameters}},
    {frozen_first_block,
     0,
     6.5,
     {reentrant, frozen_input},
     {linear, conv2d, batch_norm, layer_norm}},
    {stateful_layer, 8.5, 8.5, {batch_norm}},
    {in_place, 0, 5.5, {relu}},
    {in_place_at_segment_end, 0, 2, {in_place}},
    {odd_size, 7.5, 10, {}, {dropout, rrelu, gaussian_noise}},
    {nested_2, 0, 15, {explicit_segments}},
    {nested_3, 0, 7.5, {nested_2}},
    {nested_4, 0, 3, {nested_3}},
    {reentrant, 18, 27},
    {non_reentrant, 18, 27},
    {mixed_variants, 0, 6.5, {reentrant, non_reentrant, explicit_segments}},
    {early_stop, 25, 25, {non_reentrant}},
    {early_stop_off, 0, 10, {non_reentrant}},
    {preserve_rng_off, 0, 19},
    {fresh_draws, 0, 0.5, {preserve_rng_off}, {dropout, rrelu, gaussian_noise}},
    {no_check, 0, 6, {non_reentrant}},
    {metadata_check, 25, 25, {non_reentrant}},
    {values_check, 0, 5.5, {non_reentrant}},
    {selective, 0, 5, {non_reentrant}},
    {kept_draw_before_draw, 0, 0.6, {selective}, {dropout, rrelu, gaussian_noise}},
    {named_stream, 0, 5, {}, {dropout, rrelu, gaussian_noise}},
    {autocast, 0, 5.5, {float32}, {linear, conv2d}},
    {autocast_backward, 0, 2, {autocast}},
    {cast_cache_off, 0, 1.5, {autocast}},
    {cast_weight_shared, 0, 1, {autocast, tied_weight}},
    {offload, 0, 5.5},
    {draws_in_checkpointed_segment, 17, 18, {}, {dropout, rrelu, gaussian_noise}},
    {two_drawing_segments, 4, 3.5, {}, {dropout, rrelu, gaussian_noise}},
    {sequential, 100, 15},
    {explicit_segments, 0, 34},
    {last_stored, 100, 9, {sequential}},
    {last_checkpointed, 0, 6, {sequential}},
    {segments_1, 12, 3, {sequential}},
    {several_steps, 0, 19},
    {accumulation, 0, 17},
    {forwards_first, 0, 8.5, {accumulation}},
    {prior_gradients, 0, 7},
    {gradients_kept, 0, 5, {several_steps}},
    {retain_graph, 0, 6.5},
    {eval_mode, 0, 5.5},
    {mishap, 0, 7},
    {mishap_in_segment, 0, 2, {mishap}},
    {reevaluate, 0, 9.5},
    {sgd, 100, 35},
    {adam, 0, 15},
    {momentum, 0, 12, {sgd}},
    {mse, 100, 37},
    {cross_entropy, 0, 12},
    {float32, 100, 35},
    {float64, 0, 14},
    {small_integers, 0, 7.5},
    {more_than_a_few, 0, 0.05},
}};

constexpr bool in_order() {
  std::size_t i = 0;
  return std::all_of(kRows.begin(), kRows.end(),
                     [&](const Row& row) { return static_cast<std::size_t>(row.feature) == i++; });
}
static_assert(in_order());

bool can_occur(Feature feature, const FeatureSet& within) {
  const Row& row = kRows[static_cast<std::size_t>(feature)];
  if (!within.contains(feature)) return false;
  bool all = true;
  row.all_of.for_each([&](Feature needed) { all = all && can_occur(needed, within); });
  bool one = row.one_of.empty();
  row.one_of.for_each([&](Feature needed) { one = one || can_occur(needed, within); });
  return all && one;
}

}  // namespace

double floor(Mix mix, Feature feature, const FeatureSet& within) {
  if (!can_occur(feature, within)) return 0;
  const Row& row = kRows[static_cast<std::size_t>(feature)];
  const double promised = (mix == Mix::standard ? row.standard : row.wide) / 100;
  // What is left out takes some of what goes with it along.
  constexpr double kOfRestricted = 0.25;
  return within.is_full() ? promised : kOfRestricted * promised;
}

}  // namespace rematch
