#include "properties/cli/hidden_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "properties/output/terminal.h"

namespace rematch::cli {
namespace {

using Json = nlohmann::ordered_json;

/// "new", "limit", "bug" or "hidden": found, or what the entry is that names the fault, or neither.
const char* status_of(const Sighting& s, const Profile& profile) {
  if (s.is_new()) return "new";
  const KnownDivergence* entry = excluded_by(s, profile);
  if (entry == nullptr) return "hidden";
  return entry->promised ? "bug" : "limit";
}

std::size_t count(const HiddenReport& report, std::string_view status) {
  std::size_t n = 0;
  for (const Sighting& s : report.sightings) n += status_of(s, report.known) == status ? 1 : 0;
  return n;
}

std::string explained_by(const Sighting& s, const Profile& profile) {
  std::vector<std::string> entries;
  for (const auto& [entry, cases] : s.explained) {
    entries.push_back(fmt::format("{} ({})", profile.entries()[entry].id, counted(cases, "case")));
  }
  return entries.empty() ? "no case" : fmt::format("{}", fmt::join(entries, ", "));
}

std::string words_of(const Sighting& s, const Profile& profile) {
  if (s.is_new()) return std::string(s.law);
  const KnownDivergence* entry = excluded_by(s, profile);
  if (entry == nullptr) return "HIDDEN by " + explained_by(s, profile);
  return fmt::format("is {}, {}: {}", entry->promised ? "the known bug" : "the documented limit",
                     entry->id, entry->why);
}

}  // namespace

std::size_t HiddenReport::hidden() const { return count(*this, "hidden"); }

std::string text_of(const std::vector<HiddenReport>& reports) {
  std::string text;
  for (const HiddenReport& report : reports) {
    Table table({false, false, true, false}, {1, 3});
    table.add({"fault", "what is wrong", "cases", "found by"});
    bool has_rows = false;
    for (const Sighting& s : report.sightings) {
      if (s.is_new() && reports.size() > 1) continue;
      has_rows = true;
      table.add({std::string(s.fault->id), std::string(s.fault->statement),
                 s.is_new() ? std::to_string(s.cases) : "-", words_of(s, report.known)});
    }
    text += fmt::format(
        "{}: {} of {} found as new; documented limits are {}, known bugs {}; hidden: {}\n",
        report.profile, count(report, "new"), counted(report.sightings.size(), "fault"),
        count(report, "limit"), count(report, "bug"), report.hidden());
    if (has_rows) text += table.text() + "\n";
  }
  return text;
}

Json json_of(const std::vector<HiddenReport>& reports) {
  Json j = Json::array();
  for (const HiddenReport& report : reports) {
    Json p{{"profile", report.profile}};
    for (const char* status : {"new", "limit", "bug", "hidden"}) p[status] = count(report, status);
    p["faults"] = Json::array();
    for (const Sighting& s : report.sightings) {
      Json f{{"id", s.fault->id},
             {"statement", s.fault->statement},
             {"status", status_of(s, report.known)}};
      if (s.is_new()) {
        f["cases"] = s.cases;
        f["law"] = s.law;
      } else if (const KnownDivergence* entry = excluded_by(s, report.known)) {
        f["entry"] = entry->id;
      }
      for (const auto& [entry, cases] : s.explained) {
        f["explained"][report.known.entries()[entry].id] = cases;
      }
      p["faults"].push_back(std::move(f));
    }
    j.push_back(std::move(p));
  }
  return j;
}

}  // namespace rematch::cli
