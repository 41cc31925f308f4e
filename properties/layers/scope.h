#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "properties/layers/custom_layer.h"
#include "properties/layers/feature.h"
#include "properties/layers/options.h"

namespace rematch {

/// Features and layers that cases may have, because the subject implements them.
struct Scope {
  /// All that the engine knows of: everything but what only subjects have.
  Scope() : Scope(FeatureSet::all().without(of_subjects())) {}
  static constexpr FeatureSet of_subjects() {
    return {Feature::custom, Feature::nested_inputs, Feature::keyword_inputs,
            Feature::emptied_inputs, Feature::nested_outputs};
  }
  // Implicit: a set of features is a scope without custom layers.
  Scope(const FeatureSet& allowed, std::vector<const CustomLayer*> own = {},
        std::uint64_t per_shape = 1, bool plans = false)
      : features(allowed), custom(std::move(own)), cases_per_shape(per_shape), new_plans(plans) {
    if (custom.empty()) features.erase(Feature::custom);
    if (!features.contains(Feature::custom)) custom.clear();
  }

  FeatureSet features;
  /// The layers of the subject's own, for layers of kind custom.
  std::vector<const CustomLayer*> custom;
  /// So many cases in succession, at least 1, have the same model and plan, and differ in their
  /// seed and in the training steps (vary()): for subjects that compile every new model.
  std::uint64_t cases_per_shape = 1;
  /// Yet each of them has a new plan, and with it new in-place layers and a new failure: for
  /// subjects that compile operation by operation, whatever the plan.
  bool new_plans = false;
  /// Options that cases set.
  std::vector<OptionSpec> options;

  /// No case can have anything that is not in here, but for what only subjects have.
  bool allows_all() const {
    return features.contains_all(FeatureSet::all().without(of_subjects()));
  }
  friend bool operator==(const Scope&, const Scope&) = default;
};

/// The scope of the reference engine.
inline const Scope& everything() {
  static const Scope scope;
  return scope;
}

}  // namespace rematch
