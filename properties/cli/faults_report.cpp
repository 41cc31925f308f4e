#include "properties/cli/faults_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <sstream>

#include "properties/output/terminal.h"

namespace rematch::cli {
namespace {

std::string summary(const FaultsReport& report) {
  std::vector<std::uint64_t> cases;
  std::vector<int> layers;
  std::size_t hunts = 0;
  for (const FaultHunts& f : report.faults) {
    cases.insert(cases.end(), f.cases.begin(), f.cases.end());
    layers.insert(layers.end(), f.layers.begin(), f.layers.end());
    hunts += static_cast<std::size_t>(f.hunts);
  }
  const double rate =
      hunts == 0 ? 0 : 100.0 * static_cast<double>(cases.size()) / static_cast<double>(hunts);
  return fmt::format(
      "{}, {} each of at most {} of the {} mix: {:.{}f} % caught; cases until "
      "caught: median {}, worst {}; layers of the shrunk case: median {}, worst {}",
      counted(report.faults.size(), "fault"),
      counted(static_cast<std::size_t>(report.options.seeds), "hunt"),
      counted(report.options.cases, "case"), to_string(report.options.mix), rate,
      rate == 100 ? 0 : 1, median_of(cases), grouped(static_cast<std::int64_t>(largest_of(cases))),
      median_of(layers), largest_of(layers));
}

std::vector<std::string> cells_of(const FaultHunts& f) {
  std::string found = fmt::format("{}", fmt::join(f.laws_by_frequency(), ", "));
  if (f.survived() > 0) {
    found = fmt::format("SURVIVED {} of {}; {}", f.survived(), f.hunts, found);
  }
  return {std::string(f.fault->id),
          std::string(f.fault->statement),
          found,
          std::to_string(median_of(f.cases)),
          std::to_string(largest_of(f.cases)),
          std::to_string(median_of(f.layers)),
          std::to_string(largest_of(f.layers))};
}

/// "new", "limit", "bug" or "hidden": found, or what the entry is that names the fault, or neither.
const char* status_of(const FaultByProfile& f, const Profile& profile) {
  if (f.is_new()) return "new";
  const KnownDivergence* entry = entry_that_names(f, profile);
  if (entry == nullptr) return "hidden";
  return entry->promised ? "bug" : "limit";
}

std::size_t count(const ProfileReport& report, std::string_view status) {
  return static_cast<std::size_t>(
      std::count_if(report.faults.begin(), report.faults.end(),
                    [&](const FaultByProfile& f) { return status_of(f, report.known) == status; }));
}

std::string words_of(const FaultByProfile& f, const Profile& profile) {
  if (f.is_new()) return std::string(f.law);
  if (const KnownDivergence* entry = entry_that_names(f, profile)) {
    return fmt::format("is {}, {}: {}", entry->promised ? "the known bug" : "the documented limit",
                       entry->id, entry->why);
  }
  std::vector<std::string> entries;
  for (const auto& [entry, cases] : f.explained) {
    entries.push_back(fmt::format("{} ({})", profile.entries()[entry].id, counted(cases, "case")));
  }
  return fmt::format("HIDDEN by {}",
                     entries.empty() ? "no case" : fmt::format("{}", fmt::join(entries, ", ")));
}

}  // namespace

std::size_t FaultsReport::survivors() const {
  std::size_t n = 0;
  for (const FaultHunts& f : faults) n += static_cast<std::size_t>(f.survived());
  return n;
}

std::string text_of(const FaultsReport& report) {
  const Paint paint(colour_wanted(1));
  Table table({false, false, false, true, true, true, true}, {1, 2});
  table.add({"fault", "what is wrong", "caught by", "cases", "worst", "layers", "worst"});
  for (const FaultHunts& f : report.faults) {
    std::vector<std::string> cells = cells_of(f);
    if (f.survived() > 0) cells[0] = paint.red(cells[0]);
    table.add(cells);
  }
  return table.text() + "\n" + summary(report) + "\n";
}

std::size_t ProfileReport::hidden() const { return count(*this, "hidden"); }

std::string text_of(const std::vector<ProfileReport>& reports) {
  std::string text;
  for (const ProfileReport& report : reports) {
    Table table({false, false, true, false}, {1, 3});
    table.add({"fault", "what is wrong", "cases", "found by"});
    bool has_rows = false;
    for (const FaultByProfile& f : report.faults) {
      if (f.is_new() && reports.size() > 1) continue;
      has_rows = true;
      table.add({std::string(f.fault->id), std::string(f.fault->statement),
                 f.is_new() ? std::to_string(f.cases) : "-", words_of(f, report.known)});
    }
    text += fmt::format(
        "{}: {} of {} found as new; documented limits are {}, known bugs {}; hidden: {}\n",
        report.profile, count(report, "new"), counted(report.faults.size(), "fault"),
        count(report, "limit"), count(report, "bug"), report.hidden());
    if (has_rows) text += table.text() + "\n";
  }
  return text;
}

nlohmann::ordered_json json_of(const FaultsReport& report) {
  nlohmann::ordered_json j{{"mix", to_string(report.options.mix)},
                           {"seeds", report.options.seeds},
                           {"budget", report.options.cases},
                           {"survived", report.survivors()},
                           {"faults", nlohmann::ordered_json::array()}};
  for (const FaultHunts& f : report.faults) {
    std::istringstream words{std::string(f.fault->threads)};
    const std::vector<std::string> threads{std::istream_iterator<std::string>(words), {}};
    j["faults"].push_back({{"id", f.fault->id},
                           {"statement", f.fault->statement},
                           {"hunts", f.hunts},
                           {"survived", f.survived()},
                           {"cases", f.cases},
                           {"layers", f.layers},
                           {"laws", f.laws},
                           {"threads", threads}});
  }
  return j;
}

nlohmann::ordered_json json_of(const std::vector<ProfileReport>& reports) {
  nlohmann::ordered_json j = nlohmann::ordered_json::array();
  for (const ProfileReport& report : reports) {
    nlohmann::ordered_json faults = nlohmann::ordered_json::array();
    for (const FaultByProfile& f : report.faults) {
      nlohmann::ordered_json explained = nlohmann::ordered_json::object();
      for (const auto& [entry, cases] : f.explained) {
        explained[report.known.entries()[entry].id] = cases;
      }
      faults.push_back({{"id", f.fault->id},
                        {"status", status_of(f, report.known)},
                        {"cases", f.cases},
                        {"law", f.law},
                        {"explained", explained}});
    }
    j.push_back({{"profile", report.profile}, {"hidden", report.hidden()}, {"faults", faults}});
  }
  return j;
}

}  // namespace rematch::cli
