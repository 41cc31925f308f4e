#include "properties/cli/faults_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "properties/laws/law.h"
#include "properties/output/terminal.h"

namespace rematch::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kBegin = "<!-- begin: rematch faults --readme -->";
constexpr std::string_view kEnd = "<!-- end -->";

/// "pytorch/pytorch#7617" and so on, in order.
std::vector<std::string> threads_of(const Fault& fault) {
  std::vector<std::string> threads;
  std::string_view rest = fault.threads;
  while (!rest.empty()) {
    const std::size_t blank = std::min(rest.find(' '), rest.size());
    threads.emplace_back(rest.substr(0, blank));
    rest.remove_prefix(std::min(blank + 1, rest.size()));
  }
  return threads;
}

/// GitHub leads from an issue's address to the pull request of that number.
std::string address_of(const std::string& thread) {
  const std::size_t hash = thread.find('#');
  return "https://github.com/" + thread.substr(0, hash) + "/issues/" + thread.substr(hash + 1);
}

/// All hunts of all faults that were run.
struct Totals {
  std::vector<std::uint64_t> cases;
  std::vector<int> layers;
  double seconds = 0;
  explicit Totals(const KillReport& report) {
    for (const Kill& kill : report.kills) {
      for (const std::uint64_t n : kill.cases) {
        if (n != 0) cases.push_back(n);
      }
      layers.insert(layers.end(), kill.layers.begin(), kill.layers.end());
      seconds += kill.seconds;
    }
    std::sort(cases.begin(), cases.end());
    std::sort(layers.begin(), layers.end());
  }
};

template <class Number>
Number middle(const std::vector<Number>& sorted) {
  return sorted.empty() ? 0 : sorted[(sorted.size() - 1) / 2];
}

template <class Number>
Number last(const std::vector<Number>& sorted) {
  return sorted.empty() ? 0 : sorted.back();
}

std::string summary(const KillReport& report) {
  const Totals totals(report);
  const std::size_t hunts = report.hunts();
  const double rate = hunts == 0 ? 0
                                 : 100.0 * static_cast<double>(hunts - report.survivors()) /
                                       static_cast<double>(hunts);
  return fmt::format(
      "{}, {} each of at most {} of the {} mix: {:.{}f} % caught; cases until "
      "caught: median {}, worst {}; layers of the shrunk case: median {}, worst {}",
      counted(report.kills.size(), "fault"),
      counted(static_cast<std::size_t>(report.options.seeds), "hunt"),
      counted(report.options.cases, "case"), to_string(report.options.mix), rate,
      rate == 100 ? 0 : 1, middle(totals.cases),
      grouped(static_cast<std::int64_t>(last(totals.cases))), middle(totals.layers),
      last(totals.layers));
}

/// Which faults a comparison of gradients finds, and each law alone.
struct Reach {
  std::vector<std::size_t> by_law;
  std::vector<std::vector<std::string_view>> alone;
  std::vector<std::string_view> missed_by_gradients;

  explicit Reach(const std::vector<LawsThatFind>& matrix)
      : by_law(laws().size()), alone(laws().size()) {
    const std::set<std::string_view> gradients{"parameter-gradients", "input-gradients",
                                               "absent-gradients"};
    for (const LawsThatFind& row : matrix) {
      std::size_t finders = 0;
      std::size_t finder = 0;
      bool seen = false;
      for (std::size_t i = 0; i < row.finds.size(); ++i) {
        if (!row.finds[i]) continue;
        ++by_law[i];
        ++finders;
        finder = i;
        seen = seen || gradients.contains(laws()[i].name);
      }
      if (finders == 1) alone[finder].push_back(row.fault->id);
      if (!seen) missed_by_gradients.push_back(row.fault->id);
    }
  }
};

std::string matrix_text(const KillReport& report) {
  const Reach reach(report.matrix);
  Table table({false, true, true, false});
  table.add({"law", "finds", "alone", "only this law finds"});
  for (std::size_t i = 0; i < laws().size(); ++i) {
    table.add({std::string(laws()[i].name), std::to_string(reach.by_law[i]),
               std::to_string(reach.alone[i].size()),
               fmt::format("{}", fmt::join(reach.alone[i], " "))});
  }
  const std::size_t all = report.matrix.size();
  const auto& missed = reach.missed_by_gradients;
  return fmt::format("{}\nGradients alone find {} of {}{}{}\n", table.text(), all - missed.size(),
                     all, missed.empty() ? "" : "; they miss ", fmt::join(missed, " "));
}

}  // namespace

std::size_t KillReport::hunts() const {
  std::size_t n = 0;
  for (const Kill& kill : kills) n += kill.cases.size();
  return n;
}

std::size_t KillReport::survivors() const {
  std::size_t n = 0;
  for (const Kill& kill : kills) n += static_cast<std::size_t>(kill.survived());
  return n;
}

std::string text_of(const KillReport& report) {
  const Paint paint(colour_wanted(1));
  Table table({false, false, true, true, true, true, false}, {1, 6});
  table.add({"fault", "what is wrong", "cases", "worst", "layers", "worst", "caught by"});
  for (const Kill& kill : report.kills) {
    std::string found = fmt::format("{}", fmt::join(kill.laws_by_frequency(), ", "));
    std::string id(kill.fault->id);
    if (kill.survived() > 0) {
      id = paint.red(id);
      found.insert(0, fmt::format("SURVIVED {} of {} ", kill.survived(), kill.cases.size()));
    }
    table.add({id, std::string(kill.fault->statement), std::to_string(kill.median_cases()),
               std::to_string(kill.worst_cases()), std::to_string(kill.median_layers()),
               std::to_string(kill.worst_layers()), found});
  }
  std::string text = table.text() + "\n" + summary(report) + "\n";
  if (!report.matrix.empty()) text += "\n" + matrix_text(report);
  return text;
}

Json json_of(const KillReport& report) {
  const Totals totals(report);
  Json j;
  j["mix"] = to_string(report.options.mix);
  j["seeds"] = report.options.seeds;
  j["budget"] = report.options.cases;
  j["hunts"] = report.hunts();
  j["survived"] = report.survivors();
  j["kill_rate"] = report.hunts() == 0 ? 0.0
                                       : 1.0 - static_cast<double>(report.survivors()) /
                                                   static_cast<double>(report.hunts());
  j["cases"] = {{"median", middle(totals.cases)}, {"worst", last(totals.cases)}};
  j["layers"] = {{"median", middle(totals.layers)}, {"worst", last(totals.layers)}};
  j["faults"] = Json::array();
  for (const Kill& kill : report.kills) {
    Json f;
    f["id"] = kill.fault->id;
    f["statement"] = kill.fault->statement;
    f["status"] = kill.survived() == 0 ? "caught" : "survived";
    f["survived"] = kill.survived();
    f["cases"] = {{"median", kill.median_cases()}, {"worst", kill.worst_cases()}};
    f["cases_by_seed"] = kill.cases;
    f["layers"] = {{"median", kill.median_layers()}, {"worst", kill.worst_layers()}};
    f["laws"] = kill.laws;
    f["seconds"] = kill.seconds;
    f["threads"] = Json::array();
    for (const std::string& thread : threads_of(*kill.fault)) {
      f["threads"].push_back(address_of(thread));
    }
    j["faults"].push_back(std::move(f));
  }
  j["not_run"] = Json::array();
  for (const Fault& fault : faults()) {
    if (fault.runs()) continue;
    const bool equivalent = !fault.equivalent.empty();
    j["not_run"].push_back({{"id", fault.id},
                            {"statement", fault.statement},
                            {"status", equivalent ? "equivalent" : "needs"},
                            {"because", equivalent ? fault.equivalent : fault.needs}});
  }
  if (report.matrix.empty()) return j;
  const Reach reach(report.matrix);
  Json& matrix = j["matrix"];
  for (const LawsThatFind& row : report.matrix) {
    Json& found = matrix["faults"][std::string(row.fault->id)] = Json::array();
    for (std::size_t i = 0; i < row.finds.size(); ++i) {
      if (row.finds[i]) found.push_back(laws()[i].name);
    }
  }
  for (std::size_t i = 0; i < laws().size(); ++i) {
    matrix["laws"][std::string(laws()[i].name)] = {{"finds", reach.by_law[i]},
                                                   {"alone", reach.alone[i]}};
  }
  matrix["missed_by_gradients"] = reach.missed_by_gradients;
  return j;
}

std::string markdown_of(const KillReport& report) {
  std::string text = summary(report) + ".\n\n";
  text += "| fault | what is wrong | caught by | cases | worst | layers | worst | threads |\n";
  text += "|---|---|---|--:|--:|--:|--:|---|\n";
  for (const Kill& kill : report.kills) {
    std::vector<std::string> links;
    for (const std::string& t : threads_of(*kill.fault)) {
      links.push_back(fmt::format("[{}]({})", t, address_of(t)));
    }
    std::string found = fmt::format("{}", fmt::join(kill.laws_by_frequency(), ", "));
    if (kill.survived() > 0) found = fmt::format("survived {}; {}", kill.survived(), found);
    text += fmt::format("| {} | {} | {} | {} | {} | {} | {} | {} |\n", kill.fault->id,
                        kill.fault->statement, found, kill.median_cases(), kill.worst_cases(),
                        kill.median_layers(), kill.worst_layers(), fmt::join(links, " "));
  }
  text += "\n| not run | what would be wrong | why not |\n|---|---|---|\n";
  for (const Fault& fault : faults()) {
    if (fault.runs()) continue;
    const bool equivalent = !fault.equivalent.empty();
    text += fmt::format("| {} | {} | {}{} |\n", fault.id, fault.statement,
                        equivalent ? "Equivalent. " : "Needs ",
                        equivalent ? fault.equivalent : std::string(fault.needs) + ".");
  }
  return text;
}

std::string with_report(const std::string& text, const std::string& markdown) {
  const std::size_t begin = text.find(kBegin);
  const std::size_t end = text.find(kEnd, begin);
  if (begin == std::string::npos || end == std::string::npos) {
    throw UsageError(fmt::format("expected a file with the lines \"{}\" and \"{}\"", kBegin, kEnd));
  }
  return text.substr(0, begin) + std::string(kBegin) + "\n\n" + markdown + "\n" + text.substr(end);
}

}  // namespace rematch::cli
