#include "properties/cli/check_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/build/build_info.h"
#include "engine/cuda/runtime/device.h"
#include "properties/case/describe.h"
#include "properties/case/json.h"
#include "properties/output/terminal.h"

namespace rematch::cli {

using Json = nlohmann::ordered_json;

namespace {

double per_case(const HuntResult& r, std::int64_t count) {
  return static_cast<double>(count) / static_cast<double>(std::max<std::uint64_t>(r.cases, 1));
}

constexpr std::string_view kSlowConvolutions = "slow_convolutions";

std::int64_t slow_convolutions(const HuntResult& r) {
  const auto at = r.device_work.find(std::string(kSlowConvolutions));
  return at == r.device_work.end() ? 0 : at->second;
}

/// Kinds of a device's work that are no operations.
bool is_operation(std::string_view kind) { return kind != "waits" && kind != kSlowConvolutions; }

std::int64_t operations_of(const HuntResult& r) {
  std::int64_t sum = 0;
  for (const auto& [kind, count] : r.device_work) sum += is_operation(kind) ? count : 0;
  return sum;
}

}  // namespace

Json check_json(const CheckArguments& a, const HuntOptions& o, const CheckOutcome& outcome) {
  const HuntResult& r = outcome.hunt;
  Json j;
  j["subject"] = a.subject.name;
  if (!r.versions.empty()) j["versions"] = r.versions;
  j["device"] = a.subject.device;
  j["build"] = build_kind();
  j["mix"] = a.mix;
  j["seed"] = o.seed;
  j["saved_cases"] = outcome.saved_cases;
  if (outcome.saved_not_judged > 0) j["saved_not_judged"] = outcome.saved_not_judged;
  if (a.corpus) {
    const CorpusUse& use = outcome.corpus;
    j["corpus"] = {{"cases", use.cases},
                   {"pairs", use.pairs},
                   {"judged", use.judged},
                   {"not_judged", use.not_judged}};
  }
  j["cases"] = r.cases;
  j["not_judged"] = r.not_judged;
  if (r.not_judged > 0) j["why_not_judged"] = r.why_not_judged;
  j["violating_cases"] = r.violations();
  j["record_hash"] = fmt::format("{:016x}", r.record_hash);
  if (!r.device_work.empty()) {
    Json& work = j["device_work_per_case"];
    work["operations"] = per_case(r, operations_of(r));
    for (const auto& [kind, count] : r.device_work) work[kind] = per_case(r, count);
    if (slow_convolutions(r) > 0) j["warnings"] = {cuda::kSlowConvolutionWarning};
  }
  j["laws"] = Json::object();
  for (std::size_t i = 0; i < r.verdicts.size(); ++i) {
    if (!o.judged()[i]) continue;
    Json& counts = j["laws"][std::string(laws()[i].name)];
    for (std::size_t v = 0; v < kVerdictCount; ++v) {
      counts[std::string(to_string(static_cast<Verdict>(v)))] = r.verdicts[i][v];
    }
  }
  j["features"] = Json::object();
  for (std::size_t i = 0; i < kFeatureCount; ++i) {
    const auto feature = static_cast<Feature>(i);
    j["features"][std::string(rematch::to_string(feature))] = {{"cases", r.features[i]},
                                                               {"floor", floor(o.mix, feature)}};
  }
  j["known"] = Json::array();
  for (std::size_t i = 0; r.cases > 0 && i < o.profile.entries().size(); ++i) {
    const KnownDivergence& entry = o.profile.entries()[i];
    Json known{{"id", entry.id},
               {"cases", r.known_of(i)},
               {"promised", entry.promised},
               {"why", entry.why},
               {"link", entry.link}};
    if (r.needed.contains(i)) known["first_case"] = r.needed.at(i);
    for (const Finding& f : r.known_findings) {
      if (f.known == i) known["case"] = Json::parse(to_json(f.smallest));
    }
    j["known"].push_back(known);
  }
  j["findings"] = Json::array();
  for (const Report& report : outcome.reports) j["findings"].push_back(json_of(report));
  j["shortfalls"] = r.shortfalls;
  j["errors"] = outcome.errors;
  j["interrupted"] = r.interrupted;
  j["seconds"] = r.seconds;
  j["start_seconds"] = r.start_seconds;
  j["cases_per_second"] = r.cases_per_second();
  return j;
}

namespace {

/// The features one below the other, in so many columns of equal height.
std::string feature_table(const std::vector<std::vector<std::string>>& cells, std::size_t columns) {
  Table table({false, true, true, false, true, true});
  const std::size_t height = (cells.size() + columns - 1) / columns;
  std::vector<std::vector<std::string>> rows(height);
  std::vector<std::string> head;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    if (i % height == 0) head.insert(head.end(), {"feature", "cases", "floor"});
    rows[i % height].insert(rows[i % height].end(), cells[i].begin(), cells[i].end());
  }
  table.add(head);
  for (const std::vector<std::string>& row : rows) table.add(row);
  return table.text();
}

void print_features(const HuntOptions& o, const HuntResult& r) {
  const double total = static_cast<double>(std::max<std::uint64_t>(r.cases, 1));
  std::vector<std::vector<std::string>> cells;
  for (std::size_t i = 0; i < kFeatureCount; ++i) {
    const auto feature = static_cast<Feature>(i);
    const double promised = floor(o.mix, feature);
    if (r.features[i] == 0 && promised == 0) continue;
    cells.push_back({std::string(rematch::to_string(feature)),
                     fmt::format("{:.1f}%", 100 * static_cast<double>(r.features[i]) / total),
                     promised > 0 ? fmt::format("{:.1f}%", 100 * promised) : "-"});
  }
  // Side by side where there is room.
  std::string text = feature_table(cells, 2);
  if (display_width(text.substr(0, text.find('\n'))) > terminal_width(1)) {
    text = feature_table(cells, 1);
  }
  print_out(text + "\n");
}

/// The laws that judged no case, and why.
std::string silent_laws(const HuntOptions& o, const HuntResult& r) {
  std::string unobserved;
  std::string inapplicable;
  for (std::size_t i = 0; i < r.verdicts.size(); ++i) {
    if (!o.laws[i] || judged_of(r.verdicts[i]) > 0) continue;
    std::string& list =
        count_of(r.verdicts[i], Verdict::not_observed) > 0 ? unobserved : inapplicable;
    list += (list.empty() ? "" : ", ") + std::string(laws()[i].name);
  }
  std::string text;
  if (!inapplicable.empty()) text += "judged no case (n/a): " + inapplicable + "\n";
  if (!unobserved.empty()) text += "judged no case (not observed): " + unobserved + "\n";
  return text;
}

/// "a case asks for 90.1 operations (80.0 kernels, ...) and 3.0 waits of the device".
std::string device_work(const HuntResult& r) {
  if (r.device_work.empty() || r.cases == 0) return {};
  std::string kinds;
  for (const auto& [kind, count] : r.device_work) {
    if (!is_operation(kind)) continue;
    kinds += fmt::format("{}{:.1f} {}", kinds.empty() ? "" : ", ", per_case(r, count), kind);
  }
  std::string text =
      fmt::format("a case asks the device for {:.1f} operations ({}) and waits {:.1f} times\n",
                  per_case(r, operations_of(r)), kinds, per_case(r, r.device_work.at("waits")));
  if (slow_convolutions(r) > 0) {
    text += fmt::format("warning: {} ({} of them)\n", cuda::kSlowConvolutionWarning,
                        slow_convolutions(r));
  }
  return text;
}

/// The findings of a hunt with --keep-going, by law. Shrinking may turn a violation of one law into
/// a violation of another.
void print_findings_table(const HuntOptions& o, const HuntResult& r) {
  Table table({false, true, true, true}, {0});
  table.add({"law", "violating cases", "shrunk to it", "distinct"});
  std::uint64_t shrunk = 0;
  for (std::size_t i = 0; i < r.first_violated.size(); ++i) {
    std::uint64_t cases = 0;
    std::uint64_t distinct = 0;
    for (const Finding& f : r.findings) {
      if (f.violation.law != laws()[i].name) continue;
      cases += f.count;
      ++distinct;
    }
    shrunk += cases;
    if (r.first_violated[i] + cases == 0) continue;
    table.add({std::string(laws()[i].name), grouped(static_cast<std::int64_t>(r.first_violated[i])),
               grouped(static_cast<std::int64_t>(cases)), std::to_string(distinct)});
  }
  print_out(table.text());
  if (shrunk < r.violations()) {
    print_out(fmt::format("only the first {} violating cases of each law were shrunk: {} of {}\n",
                          o.shrunk_per_law, grouped(static_cast<std::int64_t>(shrunk)),
                          grouped(static_cast<std::int64_t>(r.violations()))));
  }
  print_out("\n");
}

/// What the profile explains: what the subject is known to get wrong, or else what it never
/// promised.
std::string table_of_known(const HuntOptions& o, const HuntResult& r, bool promised) {
  const std::vector<KnownDivergence>& entries = o.profile.entries();
  Table table({false, true, false}, {2, 0});
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (r.known_of(i) == 0 || entries[i].promised != promised) continue;
    std::string smallest = "--keep-going shrinks one";
    for (const Finding& f : r.known_findings) {
      if (f.known != i) continue;
      smallest = describe(f.smallest);
      std::replace(smallest.begin(), smallest.end(), '\n', ';');
    }
    if (table.empty()) {
      table.add({promised ? "known divergence" : "not promised", "cases", "smallest case"});
    }
    table.add({entries[i].id, grouped(static_cast<std::int64_t>(r.known_of(i))), smallest});
  }
  return table.empty() ? std::string() : table.text() + "\n";
}

/// Why cases could not be run, the most frequent reasons first.
std::string table_of_reasons(const HuntResult& r) {
  if (r.not_judged == 0) return {};
  constexpr std::size_t kMost = 10;
  std::vector<std::pair<std::string, std::uint64_t>> reasons(r.why_not_judged.begin(),
                                                             r.why_not_judged.end());
  std::stable_sort(reasons.begin(), reasons.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  Table table({true, false}, {1});
  for (std::size_t i = 0; i < std::min(kMost, reasons.size()); ++i) {
    std::string reason = reasons[i].first;
    std::replace(reason.begin(), reason.end(), '\n', ' ');
    table.add({grouped(static_cast<std::int64_t>(reasons[i].second)), reason});
  }
  const std::string further =
      reasons.size() <= kMost
          ? std::string()
          : fmt::format("and {}\n", counted(reasons.size() - kMost, "further reason"));
  return fmt::format("{} could not be run, and {} not judged:\n{}{}", counted(r.not_judged, "case"),
                     r.not_judged == 1 ? "was" : "were", table.text(), further);
}

void print_known(const HuntOptions& o, const HuntResult& r) {
  const std::vector<KnownDivergence>& entries = o.profile.entries();
  if (entries.empty() || r.cases == 0) return;
  print_out(table_of_known(o, r, true) + table_of_known(o, r, false));
  std::string stale;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (r.known_of(i) == 0) stale += (stale.empty() ? "" : ", ") + entries[i].id;
  }
  if (!stale.empty()) print_out("known, but seen in no case: " + stale + "\n\n");
}

}  // namespace

void show_progress(StatusLine& status, const HuntOptions& o, const HuntProgress& p,
                   std::string_view before) {
  std::optional<double> fraction;
  if (o.cases) {
    const auto cases = static_cast<double>(*o.cases) / static_cast<double>(o.shard.of);
    fraction = std::min(1.0, static_cast<double>(p.cases) / cases);
  }
  if (o.seconds) fraction = std::max(fraction.value_or(0), p.seconds / *o.seconds);
  std::string text = counted(p.cases, "case");
  if (p.violations > 0)
    text += ", " + grouped(static_cast<std::int64_t>(p.violations)) + " violating";
  if (p.to_shrink > 0) {
    fraction = static_cast<double>(p.shrunk) / static_cast<double>(p.to_shrink);
    text = fmt::format("shrinking, {} of {}", p.shrunk, counted(p.to_shrink, "violating case"));
  }
  status.show(p.seconds, fraction, fmt::format("{}{}", before, text));
}

void print_part(const CheckArguments& a, const HuntOptions& o, const HuntResult& r) {
  print_out(fmt::format(
      "part {} of {} of {}, {} mix, seed {}: {} judged, {} violating; {} at {} cases/s\n",
      o.shard.number, o.shard.of, counted(*o.cases, "case"), a.mix, o.seed,
      counted(r.cases, "case"), grouped(static_cast<std::int64_t>(r.violations())),
      seconds_text(r.seconds), grouped(static_cast<std::int64_t>(r.cases_per_second()))));
  if (r.interrupted || !r.error.empty()) {
    print_out("not done; the same command with --resume goes on\n");
  } else {
    print_out("when all parts are there: " + again("merge FILES...") + "\n");
  }
}

namespace {

void print_wrapped(std::string_view text) {
  for (const std::string& line : wrapped(text, terminal_width(1))) print_out(line + "\n");
}

std::string corpus_line(const CorpusUse& use) {
  return fmt::format("corpus: {} with {} of features; {} judged, of which {} could not be run",
                     counted(use.cases, "case"), counted(use.pairs, "pair"), use.judged,
                     use.not_judged);
}

}  // namespace

void print_check(const CheckArguments& a, const HuntOptions& o, const CheckOutcome& outcome) {
  const Paint paint(colour_wanted(1));
  const HuntResult& r = outcome.hunt;
  // After a finding the hunt ends early, so the frequencies say nothing.
  if (outcome.reports.empty()) print_features(o, r);
  if (a.keep_going && r.violations() > 0) print_findings_table(o, r);
  print_known(o, r);
  std::uint64_t checks = 0;
  for (const VerdictCounts& counts : r.verdicts) checks += judged_of(counts);
  print_wrapped(fmt::format("{}, {} of the {} mix, seed {}; {} of {}",
                            counted(outcome.saved_cases, "saved case"), counted(r.cases, "case"),
                            a.mix, o.seed, counted(checks, "check"),
                            counted(o.judged().count(), "law")));
  if (a.corpus) print_wrapped(corpus_line(outcome.corpus));
  if (outcome.saved_not_judged > 0) {
    print_out(
        fmt::format("{} could not be run\n", counted(outcome.saved_not_judged, "saved case")));
  }
  if (r.cases > 0) print_out(silent_laws(o, r));
  print_out(table_of_reasons(r));
  // What was merged took its time elsewhere.
  if (a.merged.empty()) {
    print_out(fmt::format("{} at {} cases/s on {}\n", seconds_text(r.seconds),
                          grouped(static_cast<std::int64_t>(r.cases_per_second())),
                          counted(static_cast<std::uint64_t>(o.jobs), "job")));
  }
  print_out(fmt::format("record hash {:016x}\n", r.record_hash));
  print_out(device_work(r));
  if (const auto device = r.versions.find("device"); device != r.versions.end()) {
    print_out("device: " + device->second +
              "\nrecord hashes are comparable only where all of this is equal\n");
  }
  for (const std::string& s : r.shortfalls) {
    print_out(fmt::format("{} {}\n", paint.red("SHORT"), s));
  }
  if (r.interrupted)
    print_out(paint.yellow(r.findings.empty()
                               ? "interrupted: the hunt ended early"
                               : "interrupted: some violating cases were not shrunk") +
              "\n");
  if (outcome.reports.empty() && r.passed()) {
    print_out(paint.green(r.interrupted ? "all laws kept so far" : "all laws kept") + "\n");
  }
}

}  // namespace rematch::cli
