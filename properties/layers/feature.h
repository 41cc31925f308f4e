#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "properties/layers/enum_set.h"
#include "properties/layers/kinds.h"

namespace rematch {

/// A property of a case that a subject may lack (properties/record/subject.h): one feature
/// for each layer kind, in its order, then those of features.def.
enum class Feature : std::uint8_t {
#define REMATCH_KIND(name) name,
  REMATCH_LAYER_KINDS(REMATCH_KIND)
#undef REMATCH_KIND
#define FEATURE(name, standard, wide) name,
#include "properties/layers/features.def"
};

inline constexpr std::size_t kFeatureCount = kLayerKinds
#define FEATURE(name, standard, wide) +1
#include "properties/layers/features.def"
    ;
using FeatureSet = EnumSet<Feature, kFeatureCount>;

/// That layers of the kind occur.
constexpr Feature feature_of(LayerKind kind) { return static_cast<Feature>(kind); }

/// "long_skip".
std::string_view to_string(Feature feature);
/// nullopt when there is none of that name.
std::optional<Feature> feature_named(std::string_view name);

}  // namespace rematch
