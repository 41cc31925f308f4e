#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/build/build_info.h"
#include "properties/case/nearest.h"
#include "properties/cli/commands.h"
#include "properties/output/terminal.h"
#include "scenarios/report/render.h"

namespace rematch::scenarios {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFooter =
    R"(Exit status:
  0    all claims hold
  1    a claim failed
  2    wrong usage or bad input
  130  interrupted

Examples:
  rematch scenario
  rematch scenario last_segment
  rematch scenario --all --json)";

struct Arguments {
  std::vector<std::string> names;
  std::string approve;
  bool all = false;
  bool json = false;
};

fs::path made_folder(std::string_view option, const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) {
    throw cli::UsageError(
        fmt::format("{}: cannot create {}: {}", option, folder.string(), error.message()));
  }
  return folder;
}

std::vector<const Scenario*> chosen(const Arguments& a) {
  std::vector<const Scenario*> result;
  for (const std::string& name : a.names) {
    const Scenario* scenario = find_scenario(name);
    if (scenario == nullptr) {
      std::vector<std::string> known;
      for (const Scenario& s : scenarios()) known.emplace_back(s.name);
      throw cli::UsageError(
          fmt::format("no scenario is named \"{}\"{} (`rematch scenario` lists them)", name,
                      did_you_mean(name, known)));
    }
    result.push_back(scenario);
  }
  if (a.all || !a.approve.empty()) {
    if (!a.names.empty())
      throw cli::UsageError("expected names, --all or --approve, got several of them");
    for (const Scenario& scenario : scenarios()) result.push_back(&scenario);
  }
  return result;
}

Report run_one(const Scenario& scenario, const std::atomic<bool>& stop) {
  cli::StatusLine status(false);
  status.show(0, std::nullopt, fmt::format("{} runs", scenario.name));
  Options options;
  options.stop = [&] { return stop.load(); };
  Report report;
  scenario.run(options, report);
  return report;
}

nlohmann::ordered_json json_of(const Scenario& scenario, const Report& report) {
  nlohmann::ordered_json claims = nlohmann::ordered_json::array();
  for (const Report::Item& item : report.items()) {
    if (const Claim* claim = std::get_if<Claim>(&item)) {
      claims.push_back({{"holds", claim->holds}, {"sentence", claim->sentence}});
    }
  }
  return {{"name", scenario.name},
          {"question", scenario.question},
          {"answer", scenario.answer},
          {"in_pytorch", scenario.advice},
          {"claims", claims}};
}

int list(bool json) {
  if (json) {
    nlohmann::ordered_json told = nlohmann::ordered_json::array();
    for (const Scenario& s : scenarios()) {
      told.push_back({{"name", s.name}, {"question", s.question}});
    }
    cli::print_out(told.dump(2) + "\n");
    return cli::kHeld;
  }
  const cli::Paint paint(cli::colour_wanted(1));
  for (const Scenario& s : scenarios()) {
    cli::print_out(fmt::format("{}\n    {}\n", paint.bold(s.name), s.question));
  }
  return cli::kHeld;
}

int run(const Arguments& a) {
  const std::vector<const Scenario*> stories = chosen(a);
  if (stories.empty()) return list(a.json);
  // Before the run, so that a bad folder costs no computation.
  if (!a.approve.empty()) made_folder("--approve", a.approve);
  const std::atomic<bool>& stop = cli::stop_on_interrupt();

  const cli::Paint paint(cli::colour_wanted(1));
  std::vector<std::string> digests;
  nlohmann::ordered_json told = nlohmann::ordered_json::array();
  int claims = 0;
  int failed = 0;
  for (const Scenario* scenario : stories) {
    if (stop) break;
    const Report report = run_one(*scenario, stop);
    claims += report.claims();
    failed += report.failed();
    digests.push_back(digest(*scenario, report));
    if (a.json) {
      told.push_back(json_of(*scenario, report));
    } else if (a.approve.empty()) {
      cli::print_out(page(*scenario, report, cli::terminal_width(1)) + "\n");
    }
  }
  const bool interrupted = stop;
  if (!a.approve.empty() && !interrupted) {
    cli::write_text(fs::path(a.approve) / "approved.json",
                    fmt::format("{{\n{}\n}}\n", fmt::join(digests, ",\n")));
  }
  if (a.json) {
    cli::print_out(told.dump(2) + "\n");
    return failed > 0 ? cli::kBroken : interrupted ? cli::kInterrupted : cli::kHeld;
  }
  if (interrupted) cli::print_out(paint.yellow("interrupted: the results so far") + "\n");
  const std::string claimed = cli::counted(static_cast<std::uint64_t>(claims), "claim");
  cli::print_out(failed == 0 ? paint.green(fmt::format("all claims hold ({})\n", claimed))
                             : paint.red(fmt::format("{} of {} failed\n", failed, claimed)));
  if (failed > 0) return cli::kBroken;
  return interrupted ? cli::kInterrupted : cli::kHeld;
}

int parse_and_run(int argc, char** argv) {
  CLI::App app{"Answers questions that users asked about checkpointing, by running them.",
               "rematch scenario"};
  Arguments a;
  app.add_option("name", a.names, "Scenarios to run; without a name, lists them")
      ->type_name("NAME");
  app.add_flag("--all", a.all, "Run every scenario");
  app.add_flag("--json", a.json, "Claims and answers as JSON instead of text");
  app.add_option("--approve", a.approve,
                 "Run all scenarios and write their digests to DIR/approved.json")
      ->type_name("DIR");
  app.footer(std::string(kFooter));
  cli::format_help(app);
  if (const std::optional<int> status = cli::parse(app, argc, argv)) return *status;
  return run(a);
}

}  // namespace
}  // namespace rematch::scenarios

int main(int argc, char** argv) {
  using namespace rematch;
  try {
    require_cpu();
    const int status = scenarios::parse_and_run(argc, argv);
    if (!cli::print_failed()) return status;
    cli::print_error("rematch scenario: standard output could not be written\n");
    return cli::kUsage;
  } catch (const std::exception& e) {
    cli::print_error(fmt::format("rematch scenario: {}\n", e.what()));
    return cli::kUsage;
  }
}
