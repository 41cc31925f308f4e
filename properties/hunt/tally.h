#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "properties/hunt/hunt.h"

namespace rematch {

/// What the judgement of some cases of a hunt comes to. Tallies of cases that follow one another
/// add up to that of all, whichever thread, process or machine judged them.
struct Tally {
  std::uint64_t cases = 0;
  std::uint64_t not_judged = 0;
  Reasons why_not_judged;
  std::array<std::uint64_t, kFeatureCount> features{};
  /// In the order of laws().
  std::vector<VerdictCounts> verdicts;
  std::vector<std::uint64_t> first_violated;
  ViolationCounts violated;
  std::uint64_t record_hash = 0;
  DeviceWork device_work;
  /// In the order of the cases; of each law the first so many that are to be shrunk.
  std::vector<ViolatingCase> violating;
  /// By entry of the profile: cases that show it and nothing new, and the first of them.
  std::map<std::size_t, std::uint64_t> known;
  std::vector<ViolatingCase> known_cases;
  /// By entry of the profile: the first case with a violation that no other entry explains.
  std::map<std::size_t, std::uint64_t> needed;

  Tally();
  /// Adds what came of the cases that follow. At most `kept_per_law` violating cases of each law
  /// are kept.
  void add(Tally next, std::size_t kept_per_law);
};

/// JSON on one line.
std::string to_json(const Tally& tally);
std::string to_json(const ViolatingCase& violating);
std::string to_json(const Finding& finding);

/// They give back what to_json() wrote. Text that is anything else throws std::invalid_argument
/// with the place, what was expected and what came.
Tally tally_from_json(const nlohmann::json& json);
ViolatingCase violating_from_json(const nlohmann::json& json);
Finding finding_from_json(const nlohmann::json& json);
/// On one line. A text in it may quote what a subject wrote, whatever that was.
std::string line_of(const nlohmann::json& json);
/// Parses text that came from another process.
nlohmann::json parse_tally_text(std::string_view text);

}  // namespace rematch
