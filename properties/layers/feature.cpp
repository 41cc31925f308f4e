#include "properties/layers/feature.h"

#include <algorithm>
#include <array>

namespace rematch {
namespace {

constexpr std::array<std::string_view, kFeatureCount> kFeatureNames{
#define REMATCH_KIND(name) #name,
    REMATCH_LAYER_KINDS(REMATCH_KIND)
#undef REMATCH_KIND
#define FEATURE(name, standard, wide) #name,
#include "properties/layers/features.def"
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
