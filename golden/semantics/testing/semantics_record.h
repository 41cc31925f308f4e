#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace rematch::golden {

/// What PyTorch did in one situation; rematch/frameworks/pytorch/contract/record.py says what the
/// members mean.
struct Probe {
  std::string id;
  std::string rule;
  /// Facts by name.
  nlohmann::json seen;
  /// Facts that the documentation promises, and that PyTorch does not keep.
  nlohmann::json promised = nlohmann::json::object();
};

/// golden/semantics/semantics.json.
struct SemanticsRecord {
  std::vector<Probe> probes;
  /// What each rule states.
  std::map<std::string, std::string> rules;
  /// The release of PyTorch.
  std::string torch;
  /// By category: {"class": ..., "says": ...}.
  nlohmann::json errors;

  /// nullptr when there is none of that name.
  const Probe* find(std::string_view id) const;
};

inline constexpr int kSemanticsFormat = 2;

/// Parses the text of golden/semantics/semantics.json. Throws std::runtime_error that says how to
/// write the file again when its format is not kSemanticsFormat, a member is missing, or an id
/// occurs twice.
SemanticsRecord parse_semantics(std::string_view text);

/// The record of the source tree, read once.
const SemanticsRecord& semantics_record();

}  // namespace rematch::golden
