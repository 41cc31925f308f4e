#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "properties/cli/check_arguments.h"
#include "properties/cli/finding.h"
#include "properties/hunt/hunt_result.h"

namespace rematch::cli {

/// What came of the regressions, which a check judges before it hunts.
struct SavedCases {
  std::uint64_t judged = 0;
  /// The subject could not run these.
  std::uint64_t not_judged = 0;
  double seconds = 0;
  /// By law.
  std::vector<VerdictCounts> verdicts;
};

/// The outcome of a check.
struct CheckOutcome {
  HuntResult hunt;
  SavedCases saved;
  std::vector<Report> reports;
  /// Errors of the check itself.
  std::vector<std::string> errors;
};

/// Everything that a check says. Terminal, JSON and JUnit are three ways to write it.
struct CheckReport : CheckOutcome {
  struct LawLine {
    std::string_view name;
    /// Whether it was asked for, rather than added because a failed run says nothing else.
    bool chosen = false;
    VerdictCounts hunted{};
    VerdictCounts saved{};
    /// Structures of the hunt that it judged.
    std::uint64_t structures = 0;
    /// Cases of the hunt in which it was the first violated law.
    std::uint64_t first_violated = 0;

    std::uint64_t checks() const { return judged_of(hunted) + judged_of(saved); }
  };
  struct FeatureLine {
    std::string_view name;
    std::uint64_t cases = 0;
    /// The least share of cases that the mix promises.
    double floor = 0;
  };
  /// An entry of the profile.
  struct KnownLine {
    KnownDivergence entry;
    std::uint64_t cases = 0;
    std::optional<std::uint64_t> first_case;
    /// The smallest case, where one was shrunk.
    std::optional<Case> smallest;
    /// The command that replays the smallest case, or else the first.
    std::string again;
  };
  /// The entries of one kind that were seen.
  struct Seen {
    std::uint64_t entries = 0;
    std::uint64_t cases = 0;
    std::uint64_t unseen = 0;
  };

  std::string subject;
  std::string device;
  std::string mix;
  std::uint64_t seed = 0;
  std::uint64_t jobs = 1;
  bool keep_going = false;

  /// Distinct models, plans and modes of the cases that were judged.
  std::uint64_t structures = 0;
  /// Beyond a number that can be kept they are estimated.
  bool structures_are_exact = true;
  std::uint64_t violating_cases = 0;
  std::uint64_t shrunk_per_law = 0;
  std::vector<LawLine> laws;
  std::vector<FeatureLine> features;
  std::vector<KnownLine> known;
  Seen bugs;
  Seen limits;
  /// What may explain a finding, and what to do.
  std::vector<std::string> hints;
  double cases_per_second = 0;

  std::uint64_t checks() const;
  bool hunted() const { return hunt.cases > 0; }
  /// Neither new nor known.
  int status() const;
};

CheckReport report_of(const CheckArguments& a, const HuntOptions& o, const CheckOutcome& outcome);

/// The findings as text, which are printed before anything is written to disk.
std::string findings_text(const CheckReport& report);
/// What follows them on a terminal: known bugs, counts, and in the last line the verdict.
std::string check_text(const CheckReport& report, bool verbose);
std::string check_json(const CheckReport& report);
/// JUnit XML, as dashboards of CI read it: a test for each law that was asked, failed where it has
/// a new finding, skipped where it judged nothing; and one for the check itself.
std::string check_junit(const CheckReport& report);

}  // namespace rematch::cli
