#include <fmt/format.h>
#include <unistd.h>

#include <random>

#include "properties/cli/check_report.h"

namespace rematch::cli {
namespace {

std::uint64_t parse_seed(const std::string& text) {
  if (text != "random") return parse_whole("--seed", text, 0, " or \"random\"");
  std::random_device device;
  return std::uint64_t{device()} << 32 | device();
}

/// Of the engine on a device; a subject in another process has its own.
bool is_on_device(const SubjectChoice& subject) {
  return subject.device != "cpu" &&
         (subject.name == "engine" || subject.name.starts_with("engine:"));
}

}  // namespace

HuntOptions hunt_options(const CheckArguments& a) {
  HuntOptions o;
  o.mix = parse_mix(a.mix);
  o.seed = parse_seed(a.seed);
  o.laws = a.laws.chosen();
  o.failures = a.laws.failures();
  o.keep_going = a.keep_going;
  o.profile = a.subject.known();
  o.make_subject = [subject = a.subject] { return subject.make(); };
  o.worker_limit = a.subject.limits().run_seconds;
  if (is_on_device(a.subject)) {
    // What a fault leaves of a device is lost to all of a process. Workers are this very program,
    // even where its file has been replaced since.
    o.worker =
        fmt::format("/proc/{}/exe work{}{} --mix {} --seed {}{}", ::getpid(), a.subject.options(),
                    a.laws.options(), a.mix, o.seed, a.keep_going ? " --keep-going" : "");
  }
  return o;
}

}  // namespace rematch::cli
