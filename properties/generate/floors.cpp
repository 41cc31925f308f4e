#include <algorithm>
#include <array>

#include "properties/generate/mix.h"
#include "properties/layers/layer.h"

namespace rematch {
namespace {

using enum Feature;

struct Row {
  Feature feature;
  /// Promised percentages of the mixes, about half of what 100,000 cases measured.
  double standard;
  double wide;
  /// A case can have the feature only if it may have all of these, and layers of such a kind.
  FeatureSet all_of = {};
  bool (*needs)(const Layer&) = nullptr;
};

bool join(const Layer& l) { return l.operands > 1; }
bool fork(const Layer& l) { return l.outputs > 1; }
bool join_or_fork(const Layer& l) { return join(l) || fork(l); }
bool join_or_hand_on(const Layer& l) { return join(l) || l.hands_on; }
bool with_weight(const Layer& l) { return l.takes("tied_to"); }
bool with_parameters(const Layer& l) { return l.has_parameters; }
bool stateful(const Layer& l) { return l.stateful; }
bool low_precision(const Layer& l) { return l.low_precision; }
bool random(const Layer& l) { return l.takes("stream"); }
bool overwriting(const Layer& l) { return l.takes("in_place"); }

/// Of all features but those of layer kinds, which promise for themselves, in their order.
constexpr std::array<Row, kFeatureCount - kLayerKinds> kRows{{
    {images, 25, 25},
    {multi_output_segment, 0, 21, {}, join_or_fork},
    {unused_output, 0, 18, {}, fork},
    {long_skip, 0, 3, {}, join},
    {tied_weight, 0, 7.5, {}, with_weight},
    {tied_three_times, 0, 1.5, {tied_weight}},
    {same_tensor_twice, 0, 18, {}, join_or_hand_on},
    {frozen_input, 0, 15},
    {trainable_input, 100, 35},
    {frozen_parameters, 0, 8.5, {}, with_parameters},
    {frozen_prefix, 0, 3.5, {frozen_parameters}},
    {frozen_first_block, 0, 6.5, {reentrant, frozen_input}, with_parameters},
    {stateful_layer, 8.5, 8.5, {}, stateful},
    {in_place, 0, 5.5, {}, overwriting},
    {in_place_at_segment_end, 0, 2, {in_place}},
    {odd_size, 7.5, 10, {}, random},
    {nested_2, 0, 15, {explicit_segments}},
    {nested_3, 0, 7.5, {nested_2}},
    {nested_4, 0, 3, {nested_3}},
    {reentrant, 18, 27},
    {non_reentrant, 18, 27},
    {mixed_variants, 0, 6.5, {reentrant, non_reentrant, explicit_segments}},
    {early_stop, 25, 25, {non_reentrant}},
    {early_stop_off, 0, 10, {non_reentrant}},
    {preserve_rng_off, 0, 19},
    {fresh_draws, 0, 0.5, {preserve_rng_off}, random},
    {no_check, 0, 6, {non_reentrant}},
    {metadata_check, 25, 25, {non_reentrant}},
    {values_check, 0, 5.5, {non_reentrant}},
    {selective, 0, 5, {non_reentrant}},
    {kept_draw_before_draw, 0, 0.6, {selective}, random},
    {named_stream, 0, 5, {}, random},
    {autocast, 0, 5.5, {float32}, low_precision},
    {autocast_backward, 0, 2, {autocast}},
    {cast_cache_off, 0, 1.5, {autocast}},
    {cast_weight_shared, 0, 1, {autocast, tied_weight}},
    {offload, 0, 5.5},
    {draws_in_checkpointed_segment, 17, 18, {}, random},
    {two_drawing_segments, 4, 3.5, {}, random},
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
  std::size_t i = kLayerKinds;
  return std::all_of(kRows.begin(), kRows.end(),
                     [&](const Row& row) { return static_cast<std::size_t>(row.feature) == i++; });
}
static_assert(in_order());

bool can_occur(Feature feature, const FeatureSet& within);

/// A kind without weight among rows needs images.
bool can_occur(LayerKind kind, const FeatureSet& within) {
  return within.contains(feature_of(kind)) &&
         (layer_of(kind).weights.rows > 0 || can_occur(images, within));
}

bool can_occur(Feature feature, const FeatureSet& within) {
  const auto index = static_cast<std::size_t>(feature);
  if (index < kLayerKinds) return can_occur(static_cast<LayerKind>(index), within);
  const Row& row = kRows[index - kLayerKinds];
  if (!within.contains(feature)) return false;
  bool all = true;
  row.all_of.for_each([&](Feature needed) { all = all && can_occur(needed, within); });
  bool some = row.needs == nullptr;
  for (std::size_t i = 0; i < kLayerKinds && !some; ++i) {
    const auto kind = static_cast<LayerKind>(i);
    some = row.needs(layer_of(kind)) && can_occur(kind, within);
  }
  return all && some;
}

Row row_of(Feature feature) {
  const auto index = static_cast<std::size_t>(feature);
  if (index >= kLayerKinds) return kRows[index - kLayerKinds];
  const Layer& layer = layer_of(static_cast<LayerKind>(index));
  return {feature, layer.standard_floor, layer.wide_floor};
}

}  // namespace

double floor(Mix mix, Feature feature, const FeatureSet& within) {
  if (!can_occur(feature, within)) return 0;
  const Row row = row_of(feature);
  const double promised = (mix == Mix::standard ? row.standard : row.wide) / 100;
  // What is left out takes some of what goes with it along.
  constexpr double kOfRestricted = 0.25;
  return within.is_full() ? promised : kOfRestricted * promised;
}

}  // namespace rematch
