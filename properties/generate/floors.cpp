#include <algorithm>
#include <array>
#include <mutex>
#include <vector>

#include "properties/case/geometry.h"
#include "properties/generate/mix.h"
#include "properties/layers/layer.h"

namespace rematch {
namespace {

struct Row {
  Feature feature;
  /// Promised percentages of the mixes, about half of what 100,000 cases measured.
  double standard;
  double wide;
};

/// Of all features but those of layer kinds, which promise for themselves, in their order.
constexpr auto kRows = [] {
  using enum Feature;
  return std::array<Row, kFeatureCount - kLayerKinds>{{
      {images, 25, 17},
      {sequences, 0, 15},
      {one_row, 6, 16},
      {multi_output_segment, 0, 21},
      {unused_output, 0, 18},
      {long_skip, 0, 4},
      {tied_weight, 0, 7.5},
      {tied_three_times, 0, 1.5},
      {same_tensor_twice, 0, 18},
      {frozen_input, 0, 15},
      {trainable_input, 100, 35},
      {several_inputs, 0, 3},
      {some_inputs_frozen, 0, 1.5},
      {frozen_parameters, 0, 8.5},
      {frozen_prefix, 0, 3.5},
      {frozen_first_block, 0, 6.5},
      {nothing_trains, 1, 7},
      {stateful_layer, 8.5, 5.5},
      {advancing_state, 0, 1.5},
      {fp8, 0, 1},
      {in_place, 0, 5.5},
      {in_place_at_segment_end, 0, 2},
      {odd_size, 7.5, 10},
      {nested_2, 0, 15},
      {nested_3, 0, 7.5},
      {nested_4, 0, 3},
      {reentrant, 18, 27},
      {non_reentrant, 18, 27},
      {mixed_variants, 0, 6.5},
      {early_stop, 25, 25},
      {early_stop_off, 0, 10},
      {preserve_rng_off, 0, 19},
      {fresh_draws, 0, 0.5},
      {no_check, 0, 6},
      {metadata_check, 25, 25},
      {values_check, 0, 5.5},
      {selective, 0, 5},
      {kept_draw_before_draw, 0, 0.6},
      {nested_inputs, 0, 0},
      {keyword_inputs, 0, 0},
      {emptied_inputs, 0, 0},
      {nested_outputs, 0, 0},
      {named_stream, 0, 5},
      {autocast, 0, 5.5},
      {autocast_backward, 0, 2},
      {cast_cache_off, 0, 1.5},
      {cast_weight_shared, 0, 1},
      {offload, 0, 5.5},
      {draws_in_checkpointed_segment, 17, 18},
      {two_drawing_segments, 4, 3.5},
      {sequential, 100, 15},
      {explicit_segments, 0, 34},
      {last_stored, 100, 9},
      {last_checkpointed, 0, 6},
      {segments_1, 12, 3},
      {several_steps, 0, 19},
      {accumulation, 0, 17},
      {forwards_first, 0, 8.5},
      {prior_gradients, 0, 7},
      {gradients_kept, 0, 5},
      {retain_graph, 0, 6.5},
      {partial_backwards, 0, 3},
      {several_losses, 0, 2},
      {clipping, 0, 5},
      {loss_scaling, 0, 2},
      {eval_mode, 0, 5.5},
      {eval_layer, 0, 5},
      {injected_failure, 0, 7},
      {failure_in_segment, 0, 2},
      {reevaluate, 0, 9.5},
      {sgd, 100, 35},
      {adam, 0, 15},
      {momentum, 0, 12},
      {mse, 100, 37},
      {cross_entropy, 0, 12},
      {float32, 100, 35},
      {float64, 0, 14},
      {small_integers, 0, 7.5},
      {more_than_a_few, 0, 0.05},
  }};
}();

constexpr bool in_order() {
  std::size_t i = kLayerKinds;
  return std::all_of(kRows.begin(), kRows.end(),
                     [&](const Row& row) { return static_cast<std::size_t>(row.feature) == i++; });
}
static_assert(in_order());

Row row_of(Feature feature) {
  const auto index = static_cast<std::size_t>(feature);
  if (index >= kLayerKinds) return kRows[index - kLayerKinds];
  const Layer& layer = layer_of(static_cast<LayerKind>(index));
  return {feature, layer.standard_floor, layer.wide_floor};
}

/// What a mix promises where not all features are allowed: what is left out takes others along that
/// go with it, so the promise is a quarter of what a sample of such cases has, where that is not
/// too little to tell.
struct Restricted {
  Mix mix;
  Scope scope;
  std::array<double, kFeatureCount> floors{};
};

std::array<double, kFeatureCount> floors_within(Mix mix, const Scope& scope) {
  static std::mutex mutex;
  static std::vector<Restricted> known;
  const std::lock_guard lock(mutex);
  for (const Restricted& r : known) {
    if (r.mix == mix && r.scope == scope) return r.floors;
  }
  constexpr std::uint64_t kSample = 2000;
  constexpr double kShare = 0.25;
  constexpr double kLeast = 0.02;
  Restricted r{mix, scope};
  // Of shapes that differ: cases of one shape have most features together.
  Scope apart = scope;
  apart.cases_per_shape = 1;
  for (std::uint64_t i = 0; i < kSample; ++i) {
    const Case c = generate_case(mix, 1, i, apart);
    features_of(c, validate(c)).for_each([&](Feature f) {
      r.floors[static_cast<std::size_t>(f)] += 1.0 / kSample;
    });
  }
  for (double& f : r.floors) f = f < kLeast ? 0 : kShare * f;
  known.push_back(r);
  return r.floors;
}

}  // namespace

double floor(Mix mix, Feature feature, const Scope& scope) {
  if (!scope.allows_all() || !scope.custom.empty()) {
    return floors_within(mix, scope)[static_cast<std::size_t>(feature)];
  }
  const Row row = row_of(feature);
  return (mix == Mix::standard ? row.standard : row.wide) / 100;
}

}  // namespace rematch
