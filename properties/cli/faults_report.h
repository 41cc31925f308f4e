#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "properties/hunt/kills.h"

namespace rematch::cli {

/// What a run of the catalogue came to.
struct KillReport {
  KillOptions options;
  std::vector<Kill> kills;
  /// Empty unless asked for.
  std::vector<LawsThatFind> matrix;

  std::size_t hunts() const;
  std::size_t survivors() const;
};

std::string text_of(const KillReport& report);
/// The same as JSON, with every number behind the text.
nlohmann::ordered_json json_of(const KillReport& report);
/// Tables of properties/faults/README.md: faults that are found, and those that are not run.
std::string markdown_of(const KillReport& report);

/// `text` with what stands between the two marker lines replaced. Throws UsageError when it has
/// none.
std::string with_report(const std::string& text, const std::string& markdown);

}  // namespace rematch::cli
