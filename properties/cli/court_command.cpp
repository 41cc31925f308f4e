#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>

#include "properties/case/json.h"
#include "properties/case/nearest.h"
#include "properties/cli/commands.h"
#include "properties/cli/court_report.h"
#include "properties/court/external_planner.h"
#include "properties/hunt/regressions.h"
#include "properties/output/terminal.h"

namespace rematch::cli {
namespace {

struct CourtArguments {
  std::vector<std::string> files;
  std::vector<std::string> planners;
  std::string chains;
  std::string seed;
  std::string jobs;
  std::string limit = "60s";
  std::string save;
  bool list = false;
  bool json = false;
};

CourtPlanner planner_named(const CourtArguments& a, const std::string& name,
                           const std::atomic<bool>& stop) {
  if (const Planner* planner = find_planner(name)) return court_planner(*planner);
  std::error_code ignored;
  if (name.ends_with(".json") && std::filesystem::is_regular_file(name, ignored)) {
    return plan_file(name, text_in(name));
  }
  // A command has words, or names a program.
  if (name.find_first_of(" /") == std::string::npos) {
    std::vector<std::string> known;
    for (const Planner& planner : planners()) known.emplace_back(planner.name);
    throw UsageError(fmt::format(
        "--planner: expected a planner of `{}`, a command in quotes or a file, got \"{}\"{}",
        again("court --list"), name, did_you_mean(name, known)));
  }
  return external_planner(name, parse_duration("--limit", a.limit), &stop);
}

int list_planners() {
  for (const Planner& planner : planners()) {
    print_out(
        fmt::format("  {:<18} {}\n", planner.name, hanging(std::string(planner.statement), 21)));
  }
  return kHeld;
}

/// Writes the worst cases, and says how to see them again.
std::string save_cases(const std::string& folder, const CourtResult& result) {
  std::string text;
  std::filesystem::create_directories(folder);
  for (const auto& [name, shown] : worst_cases(result)) {
    const std::string file = (std::filesystem::path(folder) / name).string();
    write_text(file, to_json(shown), "--save");
    text += "  " + again("replay " + shell_word(file)) + "\n";
  }
  return text.empty() ? "" : "\nthe worst of each, again:\n" + text;
}

int court(const CourtArguments& a) {
  using Clock = std::chrono::steady_clock;
  if (a.list) return list_planners();
  CourtOptions o;
  o.stop = &stop_on_interrupt();
  for (const std::string& file : a.files) o.models.push_back(load_case(file));
  if (!a.chains.empty()) o.chains = parse_whole("--chains", a.chains, 1);
  o.seed = a.seed.empty() ? std::random_device{}() : parse_whole("--seed", a.seed, 0);
  o.jobs = parse_jobs(a.jobs);
  for (const std::string& name : a.planners) o.planners.push_back(planner_named(a, name, *o.stop));
  if (a.planners.empty()) {
    for (const Planner& planner : planners()) o.planners.push_back(court_planner(planner));
  }
  prepare_threads(o.jobs, a.json);
  const std::uint64_t chains = o.models.empty() ? o.chains : o.models.size();
  const auto started = Clock::now();
  StatusLine status(a.json);
  o.progress = [&](std::uint64_t done) {
    const double seconds = std::chrono::duration<double>(Clock::now() - started).count();
    status.show(seconds, static_cast<double>(done) / static_cast<double>(chains),
                fmt::format("{} of {}", grouped(static_cast<std::int64_t>(done)),
                            counted(chains, "chain")));
  };
  const CourtResult result = hold_court(o);
  status.clear();
  const std::string saved = a.save.empty() ? "" : save_cases(a.save, result);
  if (a.json) {
    nlohmann::ordered_json j{{"seed", o.seed}};
    j.update(court_json(result));
    print_out(j.dump(2) + "\n");
  } else {
    const std::string of =
        o.models.empty() ? fmt::format("1 to {} layers, seed {}", o.most_layers, o.seed) : "files";
    print_out(Paint(colour_wanted(1)).bold(counted(result.chains, "chain")) + ", " + of + "\n\n" +
              court_text(result) + saved);
  }
  if (o.stop->load()) {
    print_error("interrupted: the chains that were not judged are left out\n");
    return kInterrupted;
  }
  for (const PlannerResult& p : result.planners) {
    if (!p.failure.empty()) {
      print_error(fmt::format("rematch: {} failed: {}\n", p.name, p.failure));
      return kUsage;
    }
  }
  return is_kept(result) ? kHeld : kBroken;
}

void declare_court(Command& command) {
  auto a = std::make_shared<CourtArguments>();
  command.add("cases", a->files, "FILE.json",
              "Models to plan instead of random chains; their own plans are not used");
  command.add("--planner", a->planners, "NAME",
              "One that --list shows, a command in quotes, which answers a line of JSON from stdin "
              "with one on stdout, or a file FILE.json with one answer or intervals [[0, 2], ...]; "
              "may be given several times (default: all that --list shows)");
  command.add("--chains", a->chains, "N", "Number of random chains (default: 1000)");
  command.add("--seed", a->seed, "S", "Seed of the chains (default: random)");
  command.add("--jobs", a->jobs, "N", "Threads (default: all)");
  command.add("--limit", a->limit, "TIME", "Longest that a command may take for one chain");
  command.add("--save", a->save, "FOLDER", "Write the worst case of each planner there");
  command.add_flag("--list", a->list, "List the planners, and end");
  command.add_flag("--json", a->json, "JSON instead of text");
  command.runs([a] { return court(*a); });
}

}  // namespace

const CommandEntry court_command{
    .name = "court",
    .summary = "Hold planners to what they promise, and compare them with the best plans",
    .examples =
        "  rematch court --chains 10000\n"
        "  rematch court --planner './my_planner --exact' --planner optimum --save worst\n"
        "  rematch court CASE.json --planner INTERVALS.json",
    .declare = declare_court,
};

}  // namespace rematch::cli
