#include "properties/cli/check_arguments.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <random>

#include "properties/hunt/worker_process.h"

namespace rematch::cli {
namespace {

std::uint64_t parse_seed(const std::string& text) {
  if (text != "random") return parse_whole("--seed", text, 0, " or \"random\"");
  std::random_device device;
  return std::uint64_t{device()} << 32 | device();
}

/// In this process on a device; a subject in another process has its own.
bool is_on_device(const SubjectChoice& subject) {
  return subject.device != "cpu" && is_in_process(subject.name);
}

/// Makes the subjects of a hunt. Of those that themselves say which profile they have, one is
/// started to be asked, and is the first that the hunt gets.
class Maker {
 public:
  explicit Maker(const SubjectChoice& choice)
      : choice_(choice), asked_(choice.names_profile() ? choice.make() : nullptr) {}

  Profile known() const { return choice_.known(asked_ ? asked_->declares().profile : ""); }
  std::unique_ptr<Subject> operator()() {
    {
      const std::lock_guard lock(mutex_);
      if (asked_) return std::move(asked_);
    }
    return choice_.make();
  }

 private:
  SubjectChoice choice_;
  std::mutex mutex_;
  std::unique_ptr<Subject> asked_;
};

}  // namespace

HuntOptions hunt_options(const CheckArguments& a) {
  HuntOptions o;
  o.mix = parse_mix(a.mix);
  o.seed = parse_seed(a.seed);
  o.laws = a.laws.chosen();
  o.failures = a.laws.failures();
  o.keep_going = a.keep_going;
  const auto maker = std::make_shared<Maker>(a.subject);
  o.profile = maker->known();
  o.make_subject = [maker] { return (*maker)(); };
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

void show_progress(StatusLine& status, const HuntOptions& o, const HuntProgress& p,
                   std::string_view before) {
  std::optional<double> fraction;
  if (o.cases) {
    fraction = std::min(1.0, static_cast<double>(p.cases) / static_cast<double>(*o.cases));
  }
  if (o.seconds) fraction = std::max(fraction.value_or(0), p.seconds / *o.seconds);
  std::string text = counted(p.cases, "case");
  if (p.violations > 0)
    text += ", " + grouped(static_cast<std::int64_t>(p.violations)) + " violating";
  if (p.to_shrink > 0) {
    fraction = static_cast<double>(p.shrunk) / static_cast<double>(p.to_shrink);
    text = fmt::format("shrinking, {} of {}", p.shrunk, counted(p.to_shrink, "violating case"));
  }
  status.show(p.seconds, fraction, fmt::format("{}{}", before, text));
}

std::string replay_line(const SubjectChoice& subject, const std::filesystem::path& file) {
  return again("replay" + subject.options() + " " + shell_word(file.lexically_normal().string()));
}

std::string numbered_line(const CheckArguments& a, std::uint64_t seed, std::uint64_t index) {
  return again(fmt::format("replay{} --mix {} --seed {} --case {}", a.subject.options(), a.mix,
                           seed, index));
}

}  // namespace rematch::cli
