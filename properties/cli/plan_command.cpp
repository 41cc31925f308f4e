#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "properties/case/describe.h"
#include "properties/case/json.h"
#include "properties/cli/commands.h"
#include "properties/hunt/gather.h"
#include "properties/hunt/regressions.h"
#include "properties/output/chart.h"
#include "properties/output/terminal.h"
#include "properties/plans/optimum.h"
#include "properties/subjects/engine_subject.h"

namespace rematch::cli {
namespace {

using Json = nlohmann::ordered_json;
/// By layer; none: layers are counted.
using Times = std::vector<std::int64_t>;

struct PlanArguments {
  std::string file;
  std::string budget;
  std::string time;
  std::string save;
  bool json = false;
};

/// A plan, and what the engine's run of it shows.
struct Tried {
  std::string name;
  PromiseSpec promise;
  PromiseSpec measured;
  std::vector<Violation> violations;
};

/// Costs of layers, where `--time` asks for the least time: numbers, or nanoseconds of the fastest
/// of many runs of each in the engine.
Times layer_times(const PlanArguments& a, const Case& c) {
  if (a.time.empty()) return {};
  if (a.time != "measured") {
    Times times;
    std::istringstream numbers(a.time + (a.time.back() == ',' ? "," : ""));
    for (std::string one; std::getline(numbers, one, ',');) {
      times.push_back(static_cast<std::int64_t>(
          std::min(parse_whole("--time", one, 1), std::uint64_t{1} << 40)));
    }
    if (times.size() != c.layers.size()) {
      throw UsageError(fmt::format(
          "--time: expected 'measured', or a number for each of {} layers, got {} of them",
          c.layers.size(), times.size()));
    }
    return times;
  }
  constexpr int kRuns = 20;
  Times fastest(c.layers.size(), std::numeric_limits<std::int64_t>::max());
  Case plain = c;
  plain.plan = {};
  RunRequest request;
  request.layer_times = &fastest;
  EngineSubject engine;
  Record record;
  for (int run = 0; run < kRuns; ++run) {
    record.clear();
    engine.run(plain, validate(plain), request, record);
    if (record.error) {
      throw UsageError("--time: expected a case that runs, got " + record.error->kind + ": " +
                       record.error->message);
    }
  }
  return fastest;
}

Case with(const Case& c, const BestPlan& best) {
  Case planned = c;
  planned.plan = {};
  planned.plan.segments = best.segments;
  planned.plan.promise = best.promise;
  return planned;
}

Tried tried(const std::string& name, const Case& c, const BestPlan& best) {
  const Case planned = with(c, best);
  EngineSubject engine;
  Workspace seen;
  Tried t{name, best.promise, {0, 0}, judge_case(planned, engine, seen).violations};
  for (const LiveReading& r : seen.checkpointed.live) {
    t.measured.peak_bytes = std::max(t.measured.peak_bytes, r.peak);
  }
  // A promise is about any one forward.
  for (const ExecutionCount& x : seen.checkpointed.executions) {
    if (x.step == 0 && x.microbatch == 0) t.measured.recomputations += x.count - 1;
  }
  return t;
}

Json json_of(const PromiseSpec& p) {
  return {{"peak_bytes", p.peak_bytes}, {"recomputations", p.recomputations}};
}

Json json_of(const Tried& t) {
  return {{"promised", json_of(t.promise)}, {"measured", json_of(t.measured)}};
}

std::string table_of(const std::vector<Tried>& plans) {
  Table table({false, true, true, true, true});
  table.add({"", "peak promised", "measured", "recomputations promised", "measured"});
  for (const Tried& t : plans) {
    table.add({t.name, bytes_text(t.promise.peak_bytes), bytes_text(t.measured.peak_bytes),
               grouped(t.promise.recomputations), grouped(t.measured.recomputations)});
  }
  return table.text();
}

const char* time_name(const PlanArguments& a) {
  return a.time == "measured" ? "nanoseconds again" : "time again";
}

/// All best plans, when no budget chooses one.
int show_frontier(const PlanArguments& a, const Case& c, const Times& times,
                  const Frontier& frontier) {
  if (a.json) {
    Json plans = Json::array();
    for (const BestPlan& p : frontier.plans) {
      plans.push_back({{"plan", Json::parse(to_json(with(c, p)))["plan"]}});
      if (!times.empty()) plans.back()["recomputed_time"] = p.cost;
    }
    Json j{{"exact", frontier.exact}, {"plans", plans}};
    if (!times.empty()) j["layer_times"] = times;
    print_out(j.dump(2) + "\n");
    return kHeld;
  }
  const char* again = times.empty() ? "recomputed layers" : time_name(a);
  Chart chart{"", again, "peak bytes", Chart::Kind::steps, {{"peak", {}, {}}}, {}, {}, {}};
  Table table({true, true, false});
  table.add({times.empty() ? "recomputations" : again, "peak", "plan"});
  for (const BestPlan& p : frontier.plans) {
    const std::string text = describe(with(c, p));
    const std::size_t at = text.find("\nplan: ") + 7;
    std::string words = text.substr(at, text.find('\n', at) - at);
    words = words.substr(0, words.find("; at most"));
    for (std::size_t k; (k = words.find(" non_reentrant")) != std::string::npos;)
      words.erase(k, 14);
    table.add({grouped(p.cost), bytes_text(p.promise.peak_bytes), words});
    chart.series[0].x.push_back(static_cast<double>(p.cost));
    chart.series[0].y.push_back(static_cast<double>(p.promise.peak_bytes));
  }
  print_out(table.text() + "\n");
  if (frontier.plans.size() > 1) {
    print_out(chart_text(chart, scale_of(std::span(&chart, 1)), terminal_width(1),
                         Paint(colour_wanted(1))));
  }
  print_out("\n`--budget BYTES` chooses the first of these that fits, and runs it\n");
  return kHeld;
}

int show_plan(const PlanArguments& a, const Case& c, const Times& times, const Frontier& frontier) {
  const auto budget = static_cast<std::int64_t>(
      std::min(parse_whole("--budget", a.budget, 1), std::uint64_t{1} << 62));
  const auto best = std::find_if(frontier.plans.begin(), frontier.plans.end(),
                                 [&](const BestPlan& p) { return p.promise.peak_bytes <= budget; });
  if (best == frontier.plans.end()) {
    const PromiseSpec& least = frontier.plans.back().promise;
    print_error(fmt::format(
        "rematch: expected a plan of at most {}, got {} as the least, with {}; give it that much, "
        "or make the model or its batch smaller\n",
        bytes_text(budget), bytes_text(least.peak_bytes),
        counted(static_cast<std::uint64_t>(least.recomputations), "recomputation")));
    return kUsage;
  }
  const Case planned = with(c, *best);
  if (!a.save.empty()) write_text(a.save, to_json(planned), "--save");
  const std::vector<Tried> plans{tried("plain", c, frontier.plans.front()),
                                 tried("this plan", c, *best)};
  for (const Violation& v : plans[1].violations) {
    print_error(
        fmt::format("rematch: the engine violates {} under this plan: expected {}, got {}\n", v.law,
                    v.expected, v.got));
  }
  const int status = plans[1].violations.empty() ? kHeld : kBroken;
  if (a.json) {
    Json j{{"case", Json::parse(to_json(planned))},
           {"exact", frontier.exact},
           {"plain", json_of(plans[0])},
           {"plan", json_of(plans[1])}};
    if (!times.empty()) {
      j["layer_times"] = times;
      j["recomputed_time"] = best->cost;
    }
    print_out(j.dump(2) + "\n");
    return status;
  }
  print_out(describe(planned) + "\n" + table_of(plans));
  if (!times.empty()) print_out(fmt::format("{}: {}\n", time_name(a), grouped(best->cost)));
  if (!a.save.empty()) print_out(fmt::format("\nwritten to {}\n", a.save));
  return status;
}

int plan(const PlanArguments& a) {
  if (a.file.empty()) throw UsageError("expected a case file, FILE.json, got none");
  const Case c = load_case(a.file);
  const Times times = layer_times(a, c);
  const Frontier frontier = frontier_of(c, times);
  if (!frontier.exact) {
    print_error(
        "rematch: the forecast corrects the bytes that the search counted; promises hold, but a "
        "better plan may exist\n");
  }
  return a.budget.empty() ? show_frontier(a, c, times, frontier) : show_plan(a, c, times, frontier);
}

void declare_plan(Command& command) {
  auto a = std::make_shared<PlanArguments>();
  command.add("case", a->file, "FILE.json",
              "A case whose layers read each the one before; its own plan is not used");
  const Option budget = command.add("--budget", a->budget, "BYTES",
                                    "The most live bytes; without it, all best plans");
  command.add(
      "--time", a->time, "measured|N,N,...",
      "Recompute the least time, not the fewest layers: as measured here in nanoseconds, or "
      "a number for each layer");
  command.add("--save", a->save, "FILE", "Write the case with the plan and its promise")
      .needs(budget);
  command.add_flag("--json", a->json, "JSON instead of text");
  command.runs([a] { return plan(*a); });
}

}  // namespace

const CommandEntry plan_command{
    .name = "plan",
    .summary = "Find the plan with the least recomputation for a number of bytes",
    .examples =
        "  rematch plan CASE.json\n"
        "  rematch plan CASE.json --budget 4096 --save PLANNED.json\n"
        "  rematch plan CASE.json --time measured\n"
        "Of a model in PyTorch (`rematch plan MODEL --help` shows more):\n"
        "  rematch plan models.py:small --budget 8GB",
    .declare = declare_plan,
};

}  // namespace rematch::cli
