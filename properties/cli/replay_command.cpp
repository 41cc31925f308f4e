#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <sstream>

#include "properties/case/describe.h"
#include "properties/case/json.h"
#include "properties/cli/commands.h"
#include "properties/cli/finding.h"
#include "properties/cli/reports.h"
#include "properties/cli/run_progress.h"
#include "properties/cli/timeline.h"
#include "properties/hunt/registry.h"
#include "properties/hunt/replay.h"
#include "properties/output/terminal.h"

namespace rematch::cli {
namespace {

using Json = nlohmann::ordered_json;

struct ReplayArguments {
  CaseChoice choice;
  LawChoice laws;
  SubjectChoice subject;
  std::string exported;
  std::string output;
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

/// Calls visit(law, verdict, violation or nullptr) for each law that was asked.
template <class Visit>
void for_each_verdict(const Replay& r, const LawSet& asked, Visit visit) {
  auto violation = r.verdicts.violations.begin();
  for (std::size_t i = 0; i < laws().size(); ++i) {
    if (!asked[i]) continue;
    const Verdict verdict = r.verdicts.by_law[i];
    visit(laws()[i], verdict, verdict == Verdict::violated ? &*violation++ : nullptr);
  }
}

/// The entry of the profile that explains the violation; nullptr when there is none.
const KnownDivergence* explained(const Replay& r, const Profile& profile,
                                 const Violation& violation) {
  const auto entry = profile.explains(violation, r.c, features_of(r.c, r.seen.geometry));
  return entry ? &profile.entries()[*entry] : nullptr;
}

Json replay_json(const Replay& r, const LawSet& asked, const Profile& profile,
                 const std::string& subject, const Versions& versions) {
  Json j;
  j["subject"] = subject;
  if (!versions.empty()) j["versions"] = versions;
  j["case"] = Json::parse(to_json(r.c));
  Json verdicts = Json::array();
  for_each_verdict(r, asked, [&](const Law& law, Verdict verdict, const Violation* violation) {
    Json entry{{"law", law.name}, {"verdict", to_string(verdict)}};
    if (violation != nullptr) {
      entry["place"] = violation->place;
      entry["expected"] = violation->expected;
      entry["got"] = violation->got;
      if (const KnownDivergence* known = explained(r, profile, *violation))
        entry["known"] = known->id;
    }
    verdicts.push_back(entry);
  });
  j["verdicts"] = verdicts;
  for (const auto& [name, record] : {std::pair<const char*, const Record*>{"plain", &r.seen.plain},
                                     {"checkpointed", &r.seen.checkpointed}}) {
    Json run;
    run["hash"] = fmt::format("{:016x}", record->hash());
    run["peak_bytes"] = record->peak_bytes;
    run["order"] = order_of_work(*record);
    if (record->error) run["error"] = record->error->kind + ": " + record->error->message;
    j[name] = run;
  }
  return j;
}

void print_errors(const Replay& r) {
  for (const Record* record : {&r.seen.plain, &r.seen.checkpointed}) {
    if (!record->error) continue;
    print_out(fmt::format("  the {} run ended in {}: {}\n",
                          record == &r.seen.plain ? "plain" : "checkpointed", record->error->kind,
                          record->error->message));
  }
}

void print_side_by_side(const Replay& r) {
  // Most subjects in other processes record no timeline.
  if (r.seen.plain.timeline.empty() && r.seen.checkpointed.timeline.empty()) return;
  const Paint paint(colour_wanted(1));
  const int width = std::max(20, (terminal_width(1) - 6) / 2);
  const auto print_columns = [width](const auto& plain, const auto& checkpointed) {
    for (std::size_t i = 0; i < std::max(plain.size(), checkpointed.size()); ++i) {
      print_out("  " + padded(i < plain.size() ? cut(plain[i], width) : "", width) + "  " +
                (i < checkpointed.size() ? cut(checkpointed[i], width) : "") + "\n");
    }
  };
  print_out("\n  " + paint.bold(padded("plain", width)) + "  " + paint.bold("checkpointed") +
            "   (layers in the order in which they ran; ' marks a recomputation)\n");
  print_columns(order_of_work(r.seen.plain), order_of_work(r.seen.checkpointed));
  const std::vector<std::string> charts =
      memory_texts(r.seen.plain, r.seen.checkpointed, width, paint);
  print_out("\n");
  print_columns(lines_of(charts[0]), lines_of(charts[1]));
  print_out("  " + padded("peak " + bytes_text(r.seen.plain.peak_bytes), width) + "  peak " +
            bytes_text(r.seen.checkpointed.peak_bytes) + "\n");
}

void print_verdicts(const Replay& r, const LawSet& asked, const Profile& profile) {
  const Paint paint(colour_wanted(1));
  for_each_verdict(r, asked, [&](const Law& law, Verdict verdict, const Violation* violation) {
    constexpr int kWidth = 12;
    const bool bad = verdict == Verdict::violated;
    const std::string word = padded(bad ? "VIOLATED" : to_string(verdict), kWidth);
    print_out(fmt::format("  {}  {}\n",
                          bad                        ? paint.red(word)
                          : verdict == Verdict::kept ? paint.green(word)
                                                     : paint.dim(word),
                          law.name));
    if (violation == nullptr) return;
    const std::string margin(kWidth + 4, ' ');
    for (const auto& [name, text] : {std::pair("at", &violation->place),
                                     {"expected", &violation->expected},
                                     {"got", &violation->got}}) {
      print_out(fmt::format("{}{:<9} {}\n", margin, name, hanging(*text, kWidth + 14)));
    }
    if (const KnownDivergence* known = explained(r, profile, *violation)) {
      print_out(
          fmt::format("{}known     {}: {} {}\n", margin, known->id, known->why, known->report()));
    }
  });
}

LawSet violated(const Replay& r) {
  LawSet violated;
  for (std::size_t i = 0; i < laws().size(); ++i) {
    violated[i] = r.verdicts.by_law[i] == Verdict::violated;
  }
  return violated;
}

/// "3 laws violated, the first dropout-masks; 20 kept, 4 n/a, 1 not observed".
std::string verdict_of(const Replay& r, const LawSet& asked, bool fresh) {
  std::array<std::size_t, kVerdictCount> counts{};
  for_each_verdict(r, asked, [&](const Law&, Verdict verdict, const Violation*) {
    ++counts[static_cast<std::size_t>(verdict)];
  });
  const Paint paint(colour_wanted(1));
  const std::string rest =
      fmt::format("{} kept, {} n/a, {} not observed", counts[0], counts[2], counts[3]);
  if (const Violation* first = r.verdicts.first()) {
    const std::string broken = counted(counts[1], "law") + " violated";
    const std::string of = (counts[1] > 1 ? ", the first " : ": ") + std::string(first->law);
    return (fresh ? paint.red(broken + of)
                  : paint.green("no new violation (" + broken + ", as the profile says)")) +
           "; " + rest;
  }
  if (counts[0] == 0) return paint.red("no law had anything to judge") + "; " + rest;
  return paint.green("all laws kept") + "; " + rest;
}

/// What the script says that it shows: the first violation, if there is one.
std::string finding_of(const Replay& r) {
  const Violation* v = r.verdicts.first();
  return v == nullptr ? "all laws kept" : text_for_script(*v);
}

/// The violation that a report is about: a new one before one that the profile explains, and
/// numbers before hashes.
const Violation* for_report(const Replay& r, const Profile& known) {
  const Violation* best = nullptr;
  int most = -1;
  for (const Violation& v : r.verdicts.violations) {
    const int worth = (explained(r, known, v) == nullptr ? 2 : 0) +
                      (v.expected.find("hash") == std::string::npos ? 1 : 0);
    if (worth > most) best = &v;
    most = std::max(most, worth);
  }
  return best;
}

/// Writes the script, or the report with it, and says where it is.
void write_script(const ReplayArguments& a, const Replay& r, Subject& subject,
                  const Profile& known) {
  std::string script;
  const bool is_issue = a.exported == "issue";
  const bool is_test = a.exported == "test";
  const bool same = is_issue || is_test || a.subject.name == a.exported ||
                    a.subject.name.starts_with(a.exported + ":") || subject.declares().exports;
  try {
    script = same ? subject.export_script(r.c, r.seen.geometry, finding_of(r))
                  : make_subject(a.exported)->export_script(r.c, r.seen.geometry, finding_of(r));
  } catch (const NotJudged& error) {
    throw std::runtime_error(std::string("--export: ") + error.what());
  }
  if (is_issue || is_test) {
    const Violation* v = is_issue ? for_report(r, known) : r.verdicts.first();
    if (v == nullptr) throw UsageError("--export: all laws are kept, so there is no finding");
    const KnownDivergence* entry = explained(r, known, *v);
    script = is_test ? test_of(*v, script) : issue_of(r.c, *v, entry, subject.declares(), script);
  }
  if (a.output.empty()) {
    print_out(script);
    return;
  }
  write_text(a.output, script, "--output");
  print_error(fmt::format("script written to {}\n", a.output));
}

/// Which subject was judged, and who said so.
std::string judged_line(const SubjectChoice& subject, const CaseChoice& choice,
                        const Options& found_with) {
  const auto found = found_with.find("subject");
  std::string why;
  if (!choice.file.empty() && found == found_with.end() && !subject.named) {
    why = "; the file names no subject, --subject does";
  } else if (found != found_with.end() && subject.named && found->second != subject.name) {
    why = "; the file was found with " + found->second;
  } else if (found != found_with.end() && !subject.named) {
    why = ", as the file says";
  }
  return fmt::format("judged: {}{}\n", subject.name, why);
}

int run_replay(ReplayArguments a) {
  const LawSet chosen = a.laws.chosen();
  const LawSet asked = chosen | a.laws.failures();
  a.choice.require();
  const Options found_with = a.choice.found_with();
  a.subject.take(found_with, a.choice.file);
  // A profile that cannot be read is said before a subject is started, which takes long.
  Profile known = a.subject.known();
  const std::unique_ptr<Subject> subject = a.subject.make();
  const Declaration& declared = subject->declares();
  if (a.subject.names_profile()) known = a.subject.known(declared.profile);
  known = known.on(declared.versions);
  const Case c = a.choice.load(subject->declares().scope);
  Replay r;
  {
    RunProgress progress(a.json);
    r = replay(c, *subject, asked, [&](std::string_view run) { progress.note(run); });
  }
  bool judged = false;
  for (std::size_t i = 0; i < laws().size(); ++i) {
    judged = judged || (chosen[i] && r.verdicts.by_law[i] == Verdict::kept);
  }
  const bool fresh =
      known.first_unexplained(r.verdicts, c, features_of(c, r.seen.geometry)) != nullptr;
  const bool held = !fresh && (judged || !r.verdicts.kept());
  const int status = held ? kHeld : kBroken;
  if (!a.exported.empty()) {
    // The script was asked for, not the verdict, so that `replay --export ... && ...` goes on.
    write_script(a, r, *subject, known);
    return kHeld;
  }
  if (a.json) {
    print_out(replay_json(r, asked, known, a.subject.name, subject->declares().versions).dump(2) +
              "\n");
    return status;
  }
  print_out(Paint(colour_wanted(1)).bold(a.choice.name()) + "\n" + describe(c) + "\n");
  print_verdicts(r, asked, known);
  print_side_by_side(r);
  print_errors(r);
  print_out("\n" + verdict_of(r, chosen | (asked & violated(r)), fresh) + "\n");
  print_out(judged_line(a.subject, a.choice, found_with));
  print_out("again: " +
            again("replay" + a.laws.options() + a.subject.options() + " " + a.choice.options()) +
            "\n");
  if (const std::string versions = text_of(subject->declares().versions); !versions.empty()) {
    print_out("versions: " + versions + "\n");
  }
  return status;
}

void declare_replay(Command& command) {
  auto a = std::make_shared<ReplayArguments>();
  a->choice.add_options(command);
  a->laws.add_options(command);
  a->subject.add_options(command);
  a->subject.add_profile(command);
  const Option exported = command.add(
      "--export", a->exported, "SUBJECT",
      "Instead of a verdict, print a script for the bare framework (pytorch, or another subject "
      "that writes scripts), a report for the tracker with script, versions and cause (issue), or "
      "a unittest that fails today (test); exit with 0 if it was written");
  command.add("--output", a->output, "FILE", "Write the script to this file").needs(exported);
  command.add_flag("--json", a->json, "JSON instead of text").excludes(exported);
  command.runs([a] { return run_replay(*a); });
}

}  // namespace

const CommandEntry replay_command{
    .name = "replay",
    .summary = "Run one case again and judge it by every law",
    .examples =
        "  rematch replay FINDING.json\n"
        "  rematch replay FINDING.json --subject engine\n"
        "  rematch replay FINDING.json --export pytorch > bug.py\n"
        "  rematch replay FINDING.json --export issue > report.md\n"
        "  rematch replay FINDING.json --export test > test_finding.py\n"
        "  rematch replay --seed 1 --case 42",
    .declare = declare_replay,
};

}  // namespace rematch::cli
