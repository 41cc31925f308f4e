#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <sstream>

#include "properties/case/json.h"
#include "properties/cli/chart.h"
#include "properties/cli/commands.h"
#include "properties/cli/terminal.h"
#include "properties/generate/words.h"
#include "properties/hunt/replay.h"

namespace rematch::cli {
namespace {

using Json = nlohmann::ordered_json;

struct ReplayArguments {
  CaseChoice choice;
  std::string law;
  SubjectChoice subject;
  bool json = false;
};

/// The layers in the order in which they ran: "forward 0 1 2", "backward 2 1", with what a layer
/// allocated left out. Consecutive events of one execution are one entry.
std::vector<std::string> order_of_work(const Record& record) {
  std::vector<std::string> lines;
  for (const PhaseSpan& span : phases_of(record.timeline)) {
    std::string line = phase_name(span.phase) + ":";
    int layer = -1;
    int execution = -1;
    for (std::size_t i = span.begin; i < span.end; ++i) {
      const TimelinePoint& p = record.timeline[i];
      if (p.layer < 0 || (p.layer == layer && p.execution == execution)) continue;
      layer = p.layer;
      execution = p.execution;
      line += fmt::format(" {}{}", layer, execution > 0 ? "'" : "");
    }
    lines.push_back(line);
  }
  return lines;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

Json replay_json(const Replay& r) {
  Json j;
  j["case"] = Json::parse(to_json(r.c));
  Json verdicts = Json::array();
  for (const LawVerdict& v : r.verdicts) {
    Json law;
    law["law"] = v.law->name;
    law["held"] = v.checked ? Json(!v.breach) : Json();
    if (v.breach) {
      law["place"] = v.breach->place;
      law["expected"] = v.breach->expected;
      law["got"] = v.breach->got;
    }
    verdicts.push_back(law);
  }
  j["verdicts"] = verdicts;
  if (r.no_answer) j["no_answer"] = {{"place", r.no_answer->place}, {"got", r.no_answer->got}};
  for (const auto& [name, record] : {std::pair<const char*, const Record*>{"plain", &r.plain},
                                     {"checkpointed", &r.checkpointed}}) {
    Json run;
    run["hash"] = fmt::format("{:016x}", record->hash());
    run["peak_bytes"] = record->peak_bytes;
    run["order"] = order_of_work(*record);
    if (record->error) run["error"] = record->error->kind + ": " + record->error->message;
    j[name] = run;
  }
  return j;
}

void print_side_by_side(const Replay& r) {
  const Paint paint(colour_wanted(1));
  const std::vector<std::string> left = order_of_work(r.plain);
  const std::vector<std::string> right = order_of_work(r.checkpointed);
  const int width = std::max(20, (terminal_width(1) - 6) / 2);
  print_out("\n  " + paint.bold(padded("plain", width)) + "  " + paint.bold("checkpointed") +
            "   (layers in order of work; ' marks a replay)\n");
  for (std::size_t i = 0; i < std::max(left.size(), right.size()); ++i) {
    print_out("  " + padded(i < left.size() ? cut(left[i], width) : "", width) + "  " +
              (i < right.size() ? cut(right[i], width) : "") + "\n");
  }
  const std::array<std::span<const TimelinePoint>, 2> timelines{r.plain.timeline,
                                                                r.checkpointed.timeline};
  const ChartScale scale = common_scale(timelines, width);
  const std::vector<std::string> plain = lines_of(chart(r.plain.timeline, scale, paint));
  const std::vector<std::string> checkpointed =
      lines_of(chart(r.checkpointed.timeline, scale, paint));
  print_out("\n");
  for (std::size_t i = 0; i < std::max(plain.size(), checkpointed.size()); ++i) {
    print_out("  " + padded(i < plain.size() ? plain[i] : "", width) + "  " +
              (i < checkpointed.size() ? checkpointed[i] : "") + "\n");
  }
  print_out("  " + padded("peak " + bytes_text(r.plain.peak_bytes), width) + "  peak " +
            bytes_text(r.checkpointed.peak_bytes) + "\n");
  for (const Record* record : {&r.plain, &r.checkpointed}) {
    if (record->error) {
      print_out(fmt::format("  {} run ended in {}: {}\n",
                            record == &r.plain ? "plain" : "checkpointed", record->error->kind,
                            record->error->message));
    }
  }
}

int run_replay(const ReplayArguments& a) {
  const Law* only = parse_law(a.law);
  const Case c = a.choice.load();
  const std::unique_ptr<Subject> subject = a.subject.make();
  const Replay r = replay(c, *subject, only);
  const Breach* breach = r.breach();
  if (a.json) {
    print_out(replay_json(r).dump(2) + "\n");
    return breach != nullptr ? kBroken : kHeld;
  }
  const Paint paint(colour_wanted(1));
  print_out(paint.bold(a.choice.name()) + "\n" + describe(c) + "\n");
  for (const LawVerdict& v : r.verdicts) {
    const std::string verdict = v.breach    ? paint.red("BROKEN")
                                : v.checked ? paint.green("held  ")
                                            : paint.dim("no say");
    print_out(fmt::format("  {}  {}\n", verdict, v.law->name));
    if (v.breach) {
      print_out(
          fmt::format("          at        {}\n          expected  {}\n          got       {}\n",
                      v.breach->place, v.breach->expected, v.breach->got));
    }
  }
  if (r.no_answer) {
    print_out(
        fmt::format("  {}  {}: {}\n", paint.red("BROKEN"), r.no_answer->place, r.no_answer->got));
  }
  print_side_by_side(r);
  return breach != nullptr ? kBroken : kHeld;
}

}  // namespace

void add_replay(CLI::App& app, Action& chosen) {
  CLI::App* command = app.add_subcommand("replay", "Run one case again and judge it law by law");
  auto a = std::make_shared<ReplayArguments>();
  a->choice.add_options(*command);
  command->add_option("--law", a->law, "Judge by this law alone")->type_name("NAME");
  a->subject.add_options(*command);
  command->add_flag("--json", a->json, "JSON instead of text");
  command->callback([&chosen, a] { chosen = [a] { return run_replay(*a); }; });
}

}  // namespace rematch::cli
