#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rematch::golden {

/// A fact in which the engine differs from PyTorch on purpose. Tests demand both sides.
struct Deviation {
  std::string id;
  /// Empty: the engine has no counterpart of the whole probe.
  std::string fact;
  nlohmann::json theirs;
  /// nullopt: the engine has no counterpart.
  std::optional<nlohmann::json> ours;
  std::string why;
};

const std::vector<Deviation>& deviations();
/// nullptr when there is none.
const Deviation* deviation(std::string_view id, std::string_view fact);

}  // namespace rematch::golden
