#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "engine/cuda/runtime/device.h"
#include "properties/case/describe.h"
#include "properties/case/json.h"
#include "properties/cli/commands.h"
#include "properties/cli/finding.h"
#include "properties/cli/run_progress.h"
#include "properties/cli/timeline.h"
#include "properties/hunt/replay.h"
#include "properties/output/terminal.h"

namespace rematch::cli {
namespace {

using Json = nlohmann::ordered_json;

struct ShowArguments {
  CaseChoice choice;
  SubjectChoice subject;
  bool json = false;
};

Json run_json(const Record& record) {
  Json list = Json::array();
  for (const TimelinePoint& p : record.timeline) {
    list.push_back({p.live, p.saved, p.layer, p.execution, phase_name(p.phase)});
  }
  return {{"peak_bytes", record.peak_bytes},
          {"reserved_bytes", record.reserved_bytes},
          {"timeline", list}};
}

Json show_json(const Replay& r) {
  Json j;
  j["case"] = Json::parse(to_json(r.c));
  j["forecast"] = {{"executions", r.seen.forecast.executions},
                   {"computations", r.seen.forecast.computations},
                   {"saved_bytes", r.seen.forecast.saved_bytes},
                   {"plain_saved_bytes", r.seen.forecast.plain_saved_bytes},
                   {"offloaded_bytes", r.seen.forecast.offloaded_bytes},
                   {"frozen_layers", r.seen.forecast.frozen_layers},
                   {"draws_per_forward", r.seen.forecast.draws_per_forward}};
  j["timeline_fields"] = {"live", "saved", "layer", "execution", "phase"};
  j["plain"] = run_json(r.seen.plain);
  j["checkpointed"] = run_json(r.seen.checkpointed);
  return j;
}

int show(const ShowArguments& a) {
  a.choice.require();
  const std::unique_ptr<Subject> subject = a.subject.make();
  const Case c = a.choice.load(subject->declares().scope);
  Replay r;
  {
    RunProgress progress(a.json);
    r = replay(c, *subject, failure_laws(), [&](std::string_view run) { progress.note(run); });
  }
  const int status = r.verdicts.kept() ? kHeld : kBroken;
  for (const Violation& v : r.verdicts.violations) {
    print_error(fmt::format("rematch: this case violates {}: {}\n", v.law, first_line(v.got)));
  }
  if (a.json) {
    print_out(show_json(r).dump(2) + "\n");
    return status;
  }
  const Paint paint(colour_wanted(1));
  print_out(paint.bold(a.choice.name()) + "\n" + describe(c) + "\n");
  // Of a case that lost the device nothing was gathered.
  if (r.seen.forecast.executions.empty()) return status;
  print_out(fmt::format("forecast: runs of each layer per forward: {}\n",
                        fmt::join(r.seen.forecast.executions, " ")));
  print_out(fmt::format("          saved after one forward: {}, plain {}\n",
                        bytes_text(r.seen.forecast.saved_bytes),
                        bytes_text(r.seen.forecast.plain_saved_bytes)));
  if (r.c.plan.offload) {
    print_out(fmt::format("          in host memory after one forward: {}\n",
                          bytes_text(r.seen.forecast.offloaded_bytes)));
  }
  if (r.seen.forecast.computations != r.seen.forecast.executions) {
    print_out(fmt::format(
        "          of these runs compute: {} (the others are views, or their results were kept)\n",
        fmt::join(r.seen.forecast.computations, " ")));
  }
  if (!r.seen.forecast.frozen_layers.empty()) {
    print_out(fmt::format("          {} layers {} (no input of their segment requires grad)\n",
                          paint.yellow("frozen:"), fmt::join(r.seen.forecast.frozen_layers, " ")));
  }
  if (r.seen.plain.timeline.empty() && r.seen.checkpointed.timeline.empty()) {
    print_out(fmt::format("{} does not record its bytes over time\n", subject->declares().name));
    return status;
  }
  const std::vector<std::string> charts =
      memory_texts(r.seen.plain, r.seen.checkpointed, terminal_width(1), paint);
  print_out("\n" + paint.bold("plain") +
            fmt::format(", peak {}\n", bytes_text(r.seen.plain.peak_bytes)));
  print_out(charts[0]);
  print_out("\n" + paint.bold("checkpointed") +
            fmt::format(", peak {}\n", bytes_text(r.seen.checkpointed.peak_bytes)));
  print_out(charts[1]);
  print_out(fmt::format("\nreserved from {}: {} (the figures above are requested bytes)\n",
                        a.subject.device == "cpu" ? "the system" : "the device",
                        bytes_text(r.seen.checkpointed.reserved_bytes)));
  if (a.subject.device != "cpu" && r.verdicts.kept()) {
    const cuda::DeviceBytes bytes = cuda::device_bytes();
    print_out(fmt::format(
        "at most {} of it were in use by both runs, {} of that by workspaces of kernels and "
        "libraries; at most {} were reserved\n",
        bytes_text(bytes.pool_used_peak), bytes_text(bytes.workspaces),
        bytes_text(bytes.pool_reserved_peak)));
  }
  return status;
}

void declare_show(Command& command) {
  auto a = std::make_shared<ShowArguments>();
  a->choice.add_options(command);
  a->subject.add_options(command);
  command.add_flag("--json", a->json, "JSON instead of text");
  command.runs([a] { return show(*a); });
}

}  // namespace

const CommandEntry show_command{
    .name = "show",
    .summary = "Show a case: the model, the plan, and its bytes over time",
    .examples =
        "  rematch show --seed 1 --case 42\n"
        "  rematch show FINDING.json",
    .declare = declare_show,
};

}  // namespace rematch::cli
