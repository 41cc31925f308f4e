#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include "engine/backend/device.h"
#include "properties/case/nearest.h"
#include "properties/cli/commands.h"
#include "properties/cli/faults_report.h"
#include "properties/output/terminal.h"

namespace rematch::cli {
namespace {

struct FaultsArguments {
  std::vector<std::string> ids;
  std::string seeds = "20";
  std::string cases = "5000";
  std::string mix = "wide";
  std::string device = "cpu";
  std::string jobs;
  std::string readme;
  std::string check;
  bool matrix = false;
  bool json = false;
};

std::vector<const Fault*> chosen_faults(const std::vector<std::string>& ids) {
  std::vector<const Fault*> chosen;
  for (const std::string& id : ids) {
    const Fault* fault = find_fault(id);
    if (fault == nullptr) {
      std::vector<std::string> known;
      for (const Fault& f : faults()) known.emplace_back(f.id);
      throw UsageError(fmt::format("--fault: no fault is named {}{} (`{}` lists them)", id,
                                   did_you_mean(id, known), again("subjects")));
    }
    if (!fault->runs()) {
      throw UsageError(fmt::format("--fault {}: {} It is not run: {}", id, fault->statement,
                                   fault->equivalent.empty() ? fault->needs : fault->equivalent));
    }
    if (std::find(chosen.begin(), chosen.end(), fault) == chosen.end()) chosen.push_back(fault);
  }
  for (const Fault& fault : faults()) {
    if (ids.empty() && fault.runs()) chosen.push_back(&fault);
  }
  return chosen;
}

/// Replaces the file atomically.
void replace(const std::string& path, const std::string& text) {
  const std::filesystem::path beside = path + ".new";
  write_text(beside, text);
  std::filesystem::rename(beside, path);
}

/// The options that reproduce the same table.
std::string options_of(const FaultsArguments& a) {
  const FaultsArguments usual;
  std::string text;
  if (a.seeds != usual.seeds) text += " --seeds " + a.seeds;
  if (a.cases != usual.cases) text += " --cases " + a.cases;
  if (a.mix != usual.mix) text += " --mix " + a.mix;
  if (a.device != usual.device) text += " --device " + a.device;
  return text;
}

int hunt_catalogue(const FaultsArguments& a) {
  using Clock = std::chrono::steady_clock;
  KillReport report;
  KillOptions& o = report.options;
  o.mix = parse_mix(a.mix);
  o.device = device_named(a.device);
  // Threads share the process's connections to the device, of which there are 8 by default.
  if (o.device != Device::cpu) (void)::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  memory_of(o.device);
  const std::uint64_t seeds = parse_whole("--seeds", a.seeds, 1);
  if (seeds > 10000)
    throw UsageError(fmt::format("--seeds: expected at most 10000, got {}", seeds));
  o.seeds = static_cast<int>(seeds);
  o.cases = parse_whole("--cases", a.cases, 1);
  o.jobs = parse_jobs(a.jobs);
  prepare_threads(o.jobs);
  o.stop = &stop_on_interrupt();
  const std::vector<const Fault*> chosen = chosen_faults(a.ids);
  const std::string& file = a.check.empty() ? a.readme : a.check;
  const std::string readme = file.empty() ? "" : text_in(file);
  if (!file.empty()) with_report(readme, "");

  const auto started = Clock::now();
  StatusLine status(a.json);
  const auto show = [&](const char* what) {
    return [&status, &chosen, started, what](std::size_t done) {
      const double seconds = std::chrono::duration<double>(Clock::now() - started).count();
      const double part = static_cast<double>(done) / static_cast<double>(chosen.size());
      status.show(seconds, part, fmt::format("{} of {} {}", done, chosen.size(), what));
    };
  };
  o.progress = show("faults hunted");
  report.kills = hunt_faults(chosen, o);
  if (a.matrix) {
    o.progress = show("faults, law by law");
    report.matrix = laws_that_find(chosen, o);
  }
  status.clear();

  print_out(a.json ? json_of(report).dump(2) + "\n" : text_of(report));
  if (o.stop->load()) {
    print_error("interrupted: unfinished faults are left out\n");
    return kInterrupted;
  }
  if (!a.readme.empty()) {
    replace(a.readme, with_report(readme, markdown_of(report)));
  }
  if (!a.check.empty() && with_report(readme, markdown_of(report)) != readme) {
    print_error(fmt::format("{} is out of date; check the table above, then run: {}\n", file,
                            again("faults" + options_of(a) + " --readme " + shell_word(file))));
    return kBroken;
  }
  return report.survivors() == 0 ? kHeld : kBroken;
}

void declare_faults(Command& command) {
  auto a = std::make_shared<FaultsArguments>();
  const Option one =
      command.add("--fault", a->ids, "ID", "Hunt only for this fault; may be given several times");
  command.add("--seeds", a->seeds, "N", "Number of hunts for each fault, with seeds 1, 2, ...");
  command.add("--cases", a->cases, "N", "Cases per hunt; a fault that none of them shows survives");
  command.add("--mix", a->mix, "MIX", "Mix of cases: standard or wide");
  command.add("--device", a->device, "DEVICE", "Device to run on: cpu or cuda");
  command.add("--jobs", a->jobs, "N", "Threads (default: all)");
  command.add_flag("--matrix", a->matrix, "Also show which law finds which fault on its own");
  const Option readme = command
                            .add("--readme", a->readme, "FILE",
                                 "Write the table into this file, between its two markers")
                            .excludes(one);
  command.add("--check", a->check, "FILE", "Fail if the table in this file is out of date")
      .excludes(readme)
      .excludes(one);
  command.add_flag("--json", a->json, "JSON instead of text");
  command.runs([a] { return hunt_catalogue(*a); });
}

}  // namespace

const CommandEntry faults_command{
    .name = "faults",
    .summary = "Prove that the laws can fail: look for bugs in engines that are wrong on purpose",
    .examples =
        "  rematch faults\n"
        "  rematch faults --fault R1 --seeds 5\n"
        "  rematch faults --matrix",
    .declare = declare_faults,
};

}  // namespace rematch::cli
