#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "properties/cli/commands.h"
#include "properties/cli/finding.h"
#include "properties/hunt/hunt_result.h"
#include "properties/output/terminal.h"

namespace rematch::cli {

/// What `rematch check` was given.
struct CheckArguments {
  std::string cases;
  std::string duration;
  std::string seed = "1";
  std::string jobs;
  LawChoice laws;
  std::string mix = "wide";
  SubjectChoice subject;
  std::string save = ".";
  std::string regressions;
  bool no_regressions = false;
  bool corpus = false;
  bool keep_going = false;
  std::string junit;
  bool json = false;
  bool quiet = false;
  /// "2/4": part 2 of 4.
  std::string shard;
  std::string results;
  bool resume = false;
  /// Of `rematch merge`: what is merged in the place of a hunt.
  std::vector<std::string> merged;
};

/// What became of the corpus of a check.
struct CorpusUse {
  std::size_t cases = 0;
  /// Pairs of features that these cases have.
  std::size_t pairs = 0;
  /// Cases that were judged, up to a violation.
  std::size_t judged = 0;
  /// Cases of these that the subject could not run.
  std::uint64_t not_judged = 0;
};

/// The outcome of a check.
struct CheckOutcome {
  HuntResult hunt;
  /// Regressions that were judged.
  std::size_t saved_cases = 0;
  /// Of these, the subject could not run.
  std::uint64_t saved_not_judged = 0;
  CorpusUse corpus;
  std::vector<Report> reports;
  /// Errors of the check itself.
  std::vector<std::string> errors;
};

/// Shows how far a hunt has come.
void show_progress(StatusLine& status, const HuntOptions& o, const HuntProgress& p,
                   std::string_view before = "");

/// The hunt that is asked for, but for its jobs and what watches it.
HuntOptions hunt_options(const CheckArguments& a);

nlohmann::ordered_json check_json(const CheckArguments& a, const HuntOptions& o,
                                  const CheckOutcome& outcome);
/// What decides the cases and verdicts of a hunt, as files of results say it, and back.
std::string hunt_of(const CheckArguments& a, const HuntOptions& o);
CheckArguments arguments_of_hunt(const std::string& hunt);
/// Of `--shard`. Throws UsageError.
Shard parse_shard(const std::string& text);

/// What is said of a part of a hunt.
void print_part(const CheckArguments& a, const HuntOptions& o, const HuntResult& r);
/// What follows the findings: features, known divergences, counts and the verdict.
void print_check(const CheckArguments& a, const HuntOptions& o, const CheckOutcome& outcome);

}  // namespace rematch::cli
