#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "properties/hunt/fault_hunts.h"
#include "properties/hunt/faults_by_profile.h"

namespace rematch::cli {

/// What a run of the catalogue came to.
struct FaultsReport {
  FaultHuntOptions options;
  std::vector<FaultHunts> faults;

  std::size_t survivors() const;
};

std::string text_of(const FaultsReport& report);
nlohmann::ordered_json json_of(const FaultsReport& report);

/// What one profile makes of the catalogue of faults.
struct ProfileReport {
  std::string profile;  ///< As it was named.
  Profile known;
  std::vector<FaultByProfile> faults;

  /// Faults that the profile explains, though none of its entries says that it is that fault.
  std::size_t hidden() const;
};

/// A table of every fault for each profile; of several profiles only what is not found as new.
std::string text_of(const std::vector<ProfileReport>& reports);
nlohmann::ordered_json json_of(const std::vector<ProfileReport>& reports);

}  // namespace rematch::cli
