#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>

#include "engine/backend/device.h"
#include "properties/case/nearest.h"
#include "properties/cli/commands.h"
#include "properties/cli/faults_report.h"
#include "properties/hunt/frameworks.h"
#include "properties/output/terminal.h"

namespace rematch::cli {
namespace {

struct FaultsArguments {
  std::vector<std::string> ids;
  std::vector<std::string> profiles;
  std::string seeds = "20";
  std::string cases = "5000";
  std::string mix = "wide";
  std::string device = "cpu";
  std::string jobs;
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

/// Every profile that comes with the program: "pytorch", "pytorch:aot:eager".
std::map<std::string, std::filesystem::path> all_profiles() {
  std::map<std::string, std::filesystem::path> files;
  for (const auto& [name, subject] : known_frameworks().subjects) {
    for (const auto& entry : std::filesystem::directory_iterator(subject.folder)) {
      std::string variant = entry.path().stem().string();
      if (!variant.starts_with("profile") || entry.path().extension() != ".json") continue;
      variant.erase(0, std::string_view("profile").size());
      std::replace(variant.begin(), variant.end(), '_', ':');
      files[subject.folder.filename().string() + variant] = entry.path();
    }
  }
  return files;
}

std::vector<ProfileReport> named_profiles(const std::vector<std::string>& names) {
  std::vector<ProfileReport> reports;
  for (const std::string& name : names) {
    if (name == "all") {
      for (const auto& [label, file] : all_profiles()) {
        reports.push_back({label, load_profile(file), {}});
      }
      continue;
    }
    SubjectChoice named;
    named.profile = name;
    reports.push_back({name, named.known(), {}});
  }
  return reports;
}

int status_of(const FaultHuntOptions& o, bool held) {
  if (!o.stop->load()) return held ? kHeld : kBroken;
  print_error("interrupted: unfinished faults are left out\n");
  return kInterrupted;
}

/// Whether the profiles hide faults, if the engine were their subject.
int judge_by_profiles(const FaultsArguments& a, const std::vector<const Fault*>& chosen,
                      const FaultHuntOptions& o, StatusLine& status) {
  std::vector<ProfileReport> reports = named_profiles(a.profiles);
  std::vector<Profile> profiles;
  profiles.reserve(reports.size());
  for (const ProfileReport& report : reports) profiles.push_back(report.known);
  auto by_profile = judge_faults_by(chosen, profiles, o);
  status.clear();
  std::size_t hidden = 0;
  for (std::size_t i = 0; i < reports.size(); ++i) {
    reports[i].faults = std::move(by_profile[i]);
    hidden += reports[i].hidden();
  }
  print_out(a.json ? json_of(reports).dump(2) + "\n" : text_of(reports));
  return status_of(o, hidden == 0);
}

int hunt_catalogue(const FaultsArguments& a) {
  using Clock = std::chrono::steady_clock;
  FaultsReport report;
  FaultHuntOptions& o = report.options;
  o.mix = parse_mix(a.mix);
  o.device = device_named(a.device);
  // Threads share the process's connections to the device, of which there are 8 by default.
  if (o.device != Device::cpu) (void)::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  memory_of(o.device);
  const std::uint64_t seeds = a.profiles.empty() || a.seeds != FaultsArguments().seeds
                                  ? parse_whole("--seeds", a.seeds, 1)
                                  : 1;
  if (seeds > 10000)
    throw UsageError(fmt::format("--seeds: expected at most 10000, got {}", seeds));
  o.seeds = static_cast<int>(seeds);
  o.cases = parse_whole("--cases", a.cases, 1);
  o.jobs = parse_jobs(a.jobs);
  prepare_threads(o.jobs);
  o.stop = &stop_on_interrupt();
  const std::vector<const Fault*> chosen = chosen_faults(a.ids);
  const auto started = Clock::now();
  StatusLine status(a.json);
  o.progress = [&](std::size_t done) {
    const double seconds = std::chrono::duration<double>(Clock::now() - started).count();
    const double part = static_cast<double>(done) / static_cast<double>(chosen.size());
    status.show(seconds, part, fmt::format("{} of {} faults hunted", done, chosen.size()));
  };
  if (!a.profiles.empty()) return judge_by_profiles(a, chosen, o, status);
  report.faults = hunt_faults(chosen, o);
  status.clear();
  print_out(a.json ? json_of(report).dump(2) + "\n" : text_of(report));
  return status_of(o, report.survivors() == 0);
}

void declare_faults(Command& command) {
  auto a = std::make_shared<FaultsArguments>();
  command.add("--fault", a->ids, "ID", "Hunt only for this fault; may be given several times");
  command.add("--seeds", a->seeds, "N", "Number of hunts for each fault, with seeds 1, 2, ...");
  command.add("--cases", a->cases, "N", "Cases per hunt; a fault that none of them shows survives");
  command.add("--mix", a->mix, "MIX", "Mix of cases: standard or wide");
  command.add("--device", a->device, "DEVICE", "Device to run on: cpu or cuda");
  command.add("--jobs", a->jobs, "N", "Threads (default: all)");
  command.add("--profile", a->profiles, "PROFILE",
              "Fail if this profile hides a fault: a name, a file, or all; may be given several "
              "times. Runs one hunt for each fault unless --seeds asks for more");
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
        "  rematch faults --profile pytorch",
    .declare = declare_faults,
};

}  // namespace rematch::cli
