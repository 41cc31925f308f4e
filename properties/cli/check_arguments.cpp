#include "properties/cli/check_arguments.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <nlohmann/json.hpp>
#include <random>
#include <span>

#include "engine/build/build_info.h"
#include "engine/checkpoint/tensor_hash.h"
#include "properties/case/json.h"
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

std::string hunt_of(const CheckArguments& a, const HuntOptions& o) {
  const std::unique_ptr<Worker> worker = make_worker(o);
  nlohmann::ordered_json hunt;
  hunt["subject"] = a.subject.name;
  hunt["device"] = a.subject.device;
  hunt["mix"] = a.mix;
  // As text: other readers of JSON would round it.
  hunt["seed"] = std::to_string(o.seed);
  hunt["cases"] = o.cases.value_or(0);
  hunt["keep_going"] = a.keep_going;
  hunt["laws"] = a.laws.named;
  hunt["without"] = a.laws.without;
  hunt["limit"] = a.subject.limit;
  hunt["python"] = a.subject.python;
  hunt["profile"] = a.subject.profile;
  hunt["known"] = nlohmann::json::array();
  for (const KnownDivergence& entry : o.profile.entries()) hunt["known"].push_back(entry.id);
  hunt["known_text"] = fmt::format("{:016x}", o.profile.text_hash());
  hunt["build"] = build_kind();
  hunt["versions"] = worker->versions();
  // What the program makes of the seed: another commit's cases may be others.
  constexpr std::uint64_t kCases = 64;
  std::string cases;
  for (std::uint64_t i = 0; i < std::min(kCases, o.cases.value_or(0)); ++i) {
    cases += to_json(case_of(o, worker->scope(), i));
  }
  hunt["first_cases"] = fmt::format("{:016x}", hash_bytes(std::as_bytes(std::span(cases))));
  return hunt.dump();
}

CheckArguments arguments_of_hunt(const std::string& hunt) {
  CheckArguments a;
  try {
    const nlohmann::json told = nlohmann::json::parse(hunt);
    told.at("subject").get_to(a.subject.name);
    told.at("device").get_to(a.subject.device);
    told.at("mix").get_to(a.mix);
    told.at("seed").get_to(a.seed);
    a.cases = std::to_string(told.at("cases").get<std::uint64_t>());
    told.at("keep_going").get_to(a.keep_going);
    told.at("laws").get_to(a.laws.named);
    told.at("without").get_to(a.laws.without);
    told.at("limit").get_to(a.subject.limit);
    told.at("python").get_to(a.subject.python);
    told.at("profile").get_to(a.subject.profile);
  } catch (const nlohmann::json::exception& error) {
    throw UsageError(fmt::format("the results are of no hunt that can be read: {}", error.what()));
  }
  return a;
}

Shard parse_shard(const std::string& text) {
  if (text.empty()) return {};
  const std::size_t slash = text.find('/');
  const auto fail = [&] {
    throw UsageError(
        fmt::format("--shard: expected K/N with K from 1 to N, such as 2/4, got \"{}\"", text));
  };
  if (slash == std::string::npos) fail();
  Shard shard;
  try {
    shard = {parse_whole("--shard", text.substr(0, slash), 1),
             parse_whole("--shard", text.substr(slash + 1), 1)};
  } catch (const UsageError&) {
    fail();
  }
  if (shard.number > shard.of) fail();
  return shard;
}

void show_progress(StatusLine& status, const HuntOptions& o, const HuntProgress& p,
                   std::string_view before) {
  std::optional<double> fraction;
  if (o.cases) {
    const auto cases = static_cast<double>(*o.cases) / static_cast<double>(o.shard.of);
    fraction = std::min(1.0, static_cast<double>(p.cases) / cases);
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
