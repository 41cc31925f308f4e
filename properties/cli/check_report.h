#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "properties/cli/commands.h"
#include "properties/cli/finding.h"
#include "properties/hunt/hunt.h"
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
  std::string corpus;
  bool no_regressions = false;
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
  /// Of the subject.
  Scope scope;
  /// Enough of the corpus to reach as many pairs as all that the subject implements.
  std::size_t run = 0;
  std::size_t cases = 0;
  std::size_t not_implemented = 0;
  std::size_t unreadable = 0;
  std::size_t pairs = 0;
  std::size_t added = 0;
};

/// The outcome of a check.
struct CheckOutcome {
  HuntResult hunt;
  /// That were judged, of regressions and corpus.
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
