#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "engine/cuda/runtime/device.h"
#include "properties/case/describe.h"
#include "properties/cli/check_report.h"
#include "properties/cli/device_work.h"
#include "properties/output/terminal.h"

namespace rematch::cli {
namespace {

std::string number_of(std::uint64_t n) { return grouped(static_cast<std::int64_t>(n)); }

std::string paragraph(std::string_view text) {
  std::string lines;
  for (const std::string& line : wrapped(text, terminal_width(1))) lines += line + "\n";
  return lines;
}

std::string features_in_full(const CheckReport& r) {
  const double total = static_cast<double>(std::max<std::uint64_t>(r.hunt.cases, 1));
  Table table({false, true, true});
  table.add({"feature", "cases", "floor"});
  for (const CheckReport::FeatureLine& f : r.features) {
    if (f.cases == 0 && f.floor == 0) continue;
    table.add({std::string(f.name),
               fmt::format("{:.1f}%", 100 * static_cast<double>(f.cases) / total),
               f.floor > 0 ? fmt::format("{:.1f}%", 100 * f.floor) : "-"});
  }
  return "Share of the cases that have each feature, and the least that the mix promises:\n" +
         table.text() + "\n";
}

/// After a finding the hunt ends early, so the frequencies say nothing.
std::string features_text(const CheckReport& r, bool verbose) {
  if (!r.reports.empty() || !r.hunted()) return {};
  if (verbose || !r.hunt.shortfalls.empty()) return features_in_full(r);
  const auto seen = std::count_if(r.features.begin(), r.features.end(),
                                  [](const CheckReport::FeatureLine& f) { return f.cases > 0; });
  return fmt::format("{} of {} features occurred in these cases (--verbose lists how often)\n",
                     seen, r.features.size());
}

/// The findings of a hunt with --keep-going, by law. Shrinking may turn a violation of one law into
/// a violation of another.
std::string findings_table(const CheckReport& r) {
  if (!r.keep_going || r.violating_cases == 0) return {};
  Table table({false, true, true, true}, {0});
  table.add({"law", "violating cases", "shrunk to it", "distinct"});
  std::uint64_t shrunk = 0;
  for (const CheckReport::LawLine& law : r.laws) {
    std::uint64_t cases = 0;
    std::uint64_t distinct = 0;
    for (const Report& f : r.reports) {
      if (f.violation.law != law.name || f.count == 0) continue;
      cases += f.count;
      ++distinct;
    }
    shrunk += cases;
    if (law.first_violated + cases == 0) continue;
    table.add({std::string(law.name), number_of(law.first_violated), number_of(cases),
               std::to_string(distinct)});
  }
  std::string text = table.text();
  if (shrunk < r.violating_cases) {
    text += fmt::format("only the first {} violating cases of each law were shrunk: {} of {}\n",
                        r.shrunk_per_law, number_of(shrunk), number_of(r.violating_cases));
  }
  return text + "\n";
}

/// The entries of the profile that were seen: bugs, or else limits.
std::string known_table(const CheckReport& r, bool promised) {
  std::string text;
  for (const CheckReport::KnownLine& line : r.known) {
    if (line.cases == 0 || line.entry.promised != promised) continue;
    if (text.empty()) text = promised ? "Known bugs:\n" : "Documented limits:\n";
    text += fmt::format("  {}, {}", line.entry.id, counted(line.cases, "case"));
    text += promised ? "; " + line.entry.report() + "\n" : "\n";
    if (line.smallest) {
      std::string smallest = describe(*line.smallest);
      while (smallest.ends_with('\n')) smallest.pop_back();
      for (std::size_t at = 0; (at = smallest.find('\n', at)) != std::string::npos;) {
        smallest.replace(at, 1, "; ");
      }
      text += "      " + smallest + "\n";
    }
    if (!line.again.empty()) text += "      " + line.again + "\n";
  }
  return text.empty() ? text : text + "\n";
}

std::string unseen_text(const CheckReport& r, bool verbose) {
  if (!r.hunted() || r.bugs.unseen + r.limits.unseen == 0) return {};
  if (verbose) {
    std::string names;
    for (const CheckReport::KnownLine& line : r.known) {
      if (line.cases == 0) names += (names.empty() ? "" : ", ") + line.entry.id;
    }
    return paragraph("Known, but not seen in these cases: " + names);
  }
  std::string what;
  if (r.bugs.unseen > 0) what = counted(r.bugs.unseen, "other known bug");
  if (r.limits.unseen > 0) {
    what += (what.empty() ? "" : " and ") + counted(r.limits.unseen, "other documented limit");
  }
  return what + " did not occur in these cases (--verbose lists them)\n";
}

/// Laws that were kept, but in too few structures to say so.
std::vector<const CheckReport::LawLine*> laws_of_few(const CheckReport& r) {
  std::vector<const CheckReport::LawLine*> few;
  for (const CheckReport::LawLine& law : r.laws) {
    const bool is_few = judged_of(law.hunted) > 0 && law.structures < kFewStructures;
    if (law.chosen && is_few) few.push_back(&law);
  }
  return few;
}

/// How many models, plans and modes were tried, and the laws for which they are few.
std::string structures_text(const CheckReport& r) {
  if (r.structures == 0) return {};
  std::string text =
      fmt::format("{}{} (distinct models, plans and modes)", r.structures_are_exact ? "" : "about ",
                  counted(r.structures, "structure"));
  if (r.structures >= kFewStructures && !laws_of_few(r).empty()) {
    std::vector<std::string> few;
    for (const CheckReport::LawLine* law : laws_of_few(r)) {
      few.push_back(fmt::format("{} {}", law->name, law->structures));
    }
    text += fmt::format("; fewer than {} for: {}", kFewStructures, fmt::join(few, ", "));
  }
  return paragraph(text);
}

/// The laws that judged no case, and why.
std::string silent_laws(const CheckReport& r) {
  if (!r.hunted()) return {};
  std::string unobserved;
  std::string inapplicable;
  for (const CheckReport::LawLine& law : r.laws) {
    if (!law.chosen || law.checks() > 0) continue;
    std::string& list = count_of(law.hunted, Verdict::not_observed) > 0 ? unobserved : inapplicable;
    list += (list.empty() ? "" : ", ") + std::string(law.name);
  }
  std::string text;
  if (!inapplicable.empty()) text += "judged no case (n/a): " + inapplicable + "\n";
  if (!unobserved.empty()) text += "judged no case (not observed): " + unobserved + "\n";
  return text;
}

/// Why cases could not be run, the most frequent reasons first.
std::string reasons_text(const CheckReport& r) {
  if (r.hunt.not_judged == 0) return {};
  constexpr std::size_t kMost = 10;
  std::vector<std::pair<std::string, std::uint64_t>> reasons(r.hunt.why_not_judged.begin(),
                                                             r.hunt.why_not_judged.end());
  std::stable_sort(reasons.begin(), reasons.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  Table table({true, false}, {1});
  for (std::size_t i = 0; i < std::min(kMost, reasons.size()); ++i) {
    table.add({number_of(reasons[i].second), first_line(reasons[i].first)});
  }
  const std::string further =
      reasons.size() <= kMost
          ? std::string()
          : fmt::format("and {}\n", counted(reasons.size() - kMost, "further reason"));
  return fmt::format("{} skipped, because the subject could not run {}:\n{}{}",
                     counted(r.hunt.not_judged, "case"), r.hunt.not_judged == 1 ? "it" : "them",
                     table.text(), further);
}

/// "a case asks for 90.1 operations (80.0 kernels, ...) and 3.0 waits of the device".
std::string work_text(const CheckReport& r) {
  if (r.hunt.device_work.empty() || !r.hunted()) return {};
  std::string kinds;
  for (const auto& [kind, count] : r.hunt.device_work) {
    if (!is_operation(kind)) continue;
    kinds += fmt::format("{}{:.1f} {}", kinds.empty() ? "" : ", ", per_case(r, count), kind);
  }
  std::string text =
      fmt::format("a case asks the device for {:.1f} operations ({}) and waits {:.1f} times\n",
                  per_case(r, operations_of(r.hunt.device_work)), kinds,
                  per_case(r, r.hunt.device_work.at("waits")));
  if (const std::int64_t slow = slow_convolutions(r.hunt.device_work); slow > 0) {
    text += fmt::format("warning: {} ({} of them)\n", cuda::kSlowConvolutionWarning, slow);
  }
  return text;
}

std::string counts_text(const CheckReport& r) {
  const std::string checks =
      fmt::format("{} of {}", counted(r.checks(), "check"), counted(r.laws.size(), "law"));
  std::string text;
  if (!r.hunted() && r.checks() > 0) {
    text = paragraph(fmt::format("{} in {}; {}; {}", counted(r.saved.judged, "saved case"),
                                 seconds_text(r.saved.seconds), checks,
                                 r.hunt.interrupted
                                     ? "the hunt had not begun"
                                     : "no random case was run after that (--keep-going goes on)"));
  } else {
    text = paragraph(fmt::format("{}, {} of the {} mix, seed {}; {}",
                                 counted(r.saved.judged, "saved case"),
                                 counted(r.hunt.cases, "case"), r.mix, r.seed, checks));
  }
  if (r.saved.not_judged > 0) {
    text += fmt::format("{} could not be run\n", counted(r.saved.not_judged, "saved case"));
  }
  return text + structures_text(r) + silent_laws(r) + reasons_text(r);
}

std::string hunt_text(const CheckReport& r) {
  if (!r.hunted()) return {};
  std::string text = fmt::format("{} at {} cases/s on {}\n", seconds_text(r.hunt.seconds),
                                 rate_text(r.cases_per_second), counted(r.jobs, "job"));
  text += fmt::format("record hash {:016x}\n", r.hunt.record_hash) + work_text(r);
  if (const auto device = r.hunt.versions.find("device"); device != r.hunt.versions.end()) {
    text += "device: " + device->second +
            "\nrecord hashes are comparable only where all of this is equal\n";
  } else if (!r.hunt.versions.empty()) {
    text += "versions: " + text_of(r.hunt.versions) + "\n";
  }
  return text;
}

/// "8 known bugs in 42 cases, 19 documented limits in 204 cases".
std::string known_text(const CheckReport& r) {
  std::string text;
  const auto add = [&](const CheckReport::Seen& seen, const char* what) {
    if (seen.entries == 0) return;
    text += fmt::format("{}{} in {}", text.empty() ? "" : ", ", counted(seen.entries, what),
                        counted(seen.cases, "case"));
  };
  add(r.bugs, "known bug");
  add(r.limits, "documented limit");
  return text;
}

/// The last line: what came of it all.
std::string verdict_text(const CheckReport& r, const Paint& paint) {
  const std::string known = known_text(r);
  const std::string beside = known.empty() ? known : fmt::format(" ({})", known);
  if (!r.reports.empty()) {
    std::vector<std::string_view> laws;
    for (const Report& f : r.reports) {
      if (std::find(laws.begin(), laws.end(), f.violation.law) == laws.end()) {
        laws.push_back(f.violation.law);
      }
    }
    return paint.red(fmt::format("{}: {}", counted(r.reports.size(), "new violation"),
                                 fmt::join(laws, ", "))) +
           beside + "\n";
  }
  if (!r.errors.empty() || !r.hunt.shortfalls.empty() || r.violating_cases > 0) return {};
  const char* const so_far = r.hunt.interrupted ? " so far" : "";
  if (!known.empty())
    return paint.green(fmt::format("no new violation{}{}", so_far, beside)) + "\n";
  if (r.checks() == 0) return "";
  if (const std::size_t few = laws_of_few(r).size(); few > 0) {
    return fmt::format(
        "no violation{}; {} judged fewer than {} structures, too few to be called kept\n", so_far,
        counted(few, "law"), kFewStructures);
  }
  return paint.green(fmt::format("all laws kept{}", so_far)) + "\n";
}

}  // namespace

std::string findings_text(const CheckReport& r) {
  std::string text;
  for (const Report& report : r.reports) text += text_of(report);
  return text;
}

std::string check_text(const CheckReport& r, bool verbose) {
  const Paint paint(colour_wanted(1));
  std::string text;
  for (const std::string& hint : r.hints) text += paragraph(paint.yellow("hint:") + " " + hint);
  if (!text.empty()) text += "\n";
  text += findings_table(r) + known_table(r, true) + known_table(r, false);
  text += unseen_text(r, verbose) + features_text(r, verbose);
  text += counts_text(r) + hunt_text(r);
  // A hunt that was stopped before its first case has no other shortfall than that.
  const bool says_nothing = r.hunt.interrupted && !r.hunted();
  for (const std::string& s : says_nothing ? std::vector<std::string>() : r.hunt.shortfalls)
    text += fmt::format("{} {}\n", paint.red("SHORT"), s);
  if (r.hunt.interrupted) {
    text += paint.yellow(r.reports.empty() ? "interrupted: the hunt ended early"
                                           : "interrupted: some violating cases were not shrunk") +
            "\n";
  }
  return text + verdict_text(r, paint);
}

}  // namespace rematch::cli
