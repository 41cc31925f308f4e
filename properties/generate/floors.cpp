#include <array>
#include <mutex>
#include <vector>

#include "properties/case/geometry.h"
#include "properties/generate/mix.h"
#include "properties/layers/layer.h"

namespace rematch {
namespace {

/// Minimum percentages of cases that have a feature.
struct Floors {
  double standard;
  double wide;
};

constexpr Floors kFloors[] = {
#define FEATURE(name, standard, wide) {standard, wide},
#include "properties/layers/features.def"
};

Floors floors_of(Feature feature) {
  const auto index = static_cast<std::size_t>(feature);
  if (index >= kLayerKinds) return kFloors[index - kLayerKinds];
  const Layer& layer = layer_of(static_cast<LayerKind>(index));
  return {layer.standard_floor, layer.wide_floor};
}

/// The floors of a mix where not all features are allowed: features that are left out take others
/// along, so each floor is a quarter of what a sample of such cases has, where that is not
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
  // A sample of different shapes: cases of one shape have most features together.
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
  const Floors floors = floors_of(feature);
  return (mix == Mix::standard ? floors.standard : floors.wide) / 100;
}

}  // namespace rematch
