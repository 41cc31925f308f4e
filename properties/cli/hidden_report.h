#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "properties/hunt/hidden.h"

namespace rematch::cli {

/// What one profile makes of the catalogue of faults.
struct HiddenReport {
  std::string profile;  ///< As it was named.
  Profile known;
  std::vector<Sighting> sightings;

  /// Faults that the profile explains, though none of its entries says that it is that fault.
  std::size_t hidden() const;
};

/// A table of every fault for each profile; of several profiles only what is not found as new.
std::string text_of(const std::vector<HiddenReport>& reports);
/// The same as JSON, with every fault of each profile.
nlohmann::ordered_json json_of(const std::vector<HiddenReport>& reports);

}  // namespace rematch::cli
