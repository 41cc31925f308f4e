#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "properties/cli/check_report.h"
#include "properties/cli/commands.h"
#include "properties/hunt/corpus.h"
#include "properties/output/terminal.h"

namespace rematch::cli {
namespace {

namespace fs = std::filesystem;

struct CorpusArguments {
  std::string into;
  std::vector<std::string> from;
  std::string cases;
  std::string seed = "1";
  std::string mix = "wide";
  std::string jobs;
  SubjectChoice subject;
};

bool is_given(const CorpusCase& c) { return !is_reaching(c) && !is_broken(c); }

/// Cases that reach what the corpus has not. Nothing is run: what a case reaches is known before.
Corpus more_cases(const CorpusArguments& a, const Corpus& corpus) {
  const std::uint64_t count = parse_whole("--cases", a.cases, 1);
  const std::uint64_t seed = parse_whole("--seed", a.seed, 0);
  const Mix mix = parse_mix(a.mix);
  const Scope scope = scope_of(*a.subject.make());
  const auto generate = [&](std::uint64_t i) { return generate_case(mix, seed, i, scope); };
  const int jobs = parse_jobs(a.jobs);
  prepare_threads(jobs);
  return reaching_more(pairs_of(within(corpus, scope)), count, generate, jobs);
}

int corpus(const CorpusArguments& a) {
  if (a.from.empty() && a.cases.empty() && !fs::exists(a.into)) {
    throw UsageError(
        fmt::format("{} is not there, and neither other folders nor --cases say what "
                    "to put into it",
                    a.into));
  }
  std::vector<std::string> unreadable;
  Corpus before;
  if (fs::exists(a.into)) before = load_corpus(a.into, unreadable);
  Corpus all = before;
  for (const std::string& folder : a.from) {
    for (CorpusCase& c : load_corpus(folder, unreadable)) {
      // What somebody put there is not ours to copy.
      if (!is_given(c)) all.push_back(std::move(c));
    }
  }
  if (!a.cases.empty()) {
    for (CorpusCase& c : more_cases(a, all)) all.push_back(std::move(c));
  }
  const Corpus kept = minimised(all);
  std::set<std::string> stay;
  for (const CorpusCase& c : kept) stay.insert(c.name);
  fs::create_directory(a.into);
  // Before anything is removed, so that at no time a pair is reached by none.
  const std::size_t added = save_corpus(kept, a.into);
  std::size_t removed = 0;
  for (const CorpusCase& c : before) {
    if (!is_given(c) && !stay.contains(c.name)) removed += fs::remove(fs::path(a.into) / c.name);
  }
  for (const std::string& why : unreadable) print_error("rematch: " + why + "\n");
  const auto reach = static_cast<std::size_t>(std::count_if(kept.begin(), kept.end(), is_reaching));
  print_out(
      fmt::format("{}: {} of features, reached by {}; {} that broke a subject; {} added, {} "
                  "removed\n",
                  a.into, counted(pairs_of(kept).size(), "pair"), counted(reach, "case"),
                  counted(kept.size() - reach, "case"), added, removed));
  return kHeld;
}

}  // namespace

void add_corpus(Command& app) {
  Command command = app.add_command(
      "corpus", "Merge folders of `check --corpus` into the first, without what smaller cases do");
  auto a = std::make_shared<CorpusArguments>();
  command.add("into", a->into, "DIR", "Folder, which is made if it is not there").required();
  command.add("from", a->from, "DIR", "Folders, which stay as they are");
  const Option cases = command.add(
      "--cases", a->cases, "N", "Also add what this many random cases reach, without running them");
  command.add("--seed", a->seed, "S", "Seed of these cases").needs(cases);
  command.add("--mix", a->mix, "MIX", "Mix of these cases: standard or wide").needs(cases);
  command.add("--jobs", a->jobs, "N", "Threads (default: one for each core)").needs(cases);
  a->subject.add_options(command).needs(cases);
  command.runs([a] { return corpus(*a); });
}

}  // namespace rematch::cli
