#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>
#include <fstream>
#include <iterator>
#include <thread>

#include "engine/backend/device.h"
#include "properties/case/nearest.h"
#include "properties/cli/commands.h"
#include "properties/hunt/frameworks.h"
#include "properties/hunt/regressions.h"
#include "properties/output/terminal.h"
#include "properties/record/machine.h"

namespace rematch::cli {

namespace {

std::string program_name = "rematch";
std::atomic<bool> stop_requested{false};

/// The first interrupt lets the hunt end and report; the second one ends the program at once.
void on_interrupt(int) {
  if (stop_requested.exchange(true)) std::_Exit(kInterrupted);
}

void on_any_interrupt(int) { stop_requested = true; }

}  // namespace

const std::atomic<bool>& stop_on_interrupt(bool second_ends) {
  const auto handler = second_ends ? on_interrupt : on_any_interrupt;
  std::signal(SIGINT, handler);
  std::signal(SIGTERM, handler);
  return stop_requested;
}

int parse_jobs(const std::string& text, unsigned usual) {
  std::uint64_t jobs = std::clamp(std::thread::hardware_concurrency(), 1U, usual);
  if (!text.empty()) jobs = parse_whole("--jobs", text, 1);
  if (jobs > kMaxJobs) {
    throw UsageError(fmt::format("--jobs: expected at most {}, got {}", kMaxJobs, jobs));
  }
  return static_cast<int>(jobs);
}

void prepare_threads(int jobs, bool quiet) {
  const std::string limited = fit_memory_limit(jobs);
  if (!limited.empty() && !quiet) print_error("rematch: " + limited + "\n");
}

void set_program_name(const std::string& name) { program_name = name; }

std::string again(const std::string& arguments) {
  return shell_word(program_name) + " " + arguments;
}

std::string text_in(const std::filesystem::path& file) {
  errno = 0;
  std::ifstream in(file, std::ios::binary);
  if (!in) {
    throw UsageError(fmt::format("cannot read {}: {}", file.string(), std::strerror(errno)));
  }
  return {std::istreambuf_iterator<char>(in), {}};
}

void write_text(const std::filesystem::path& file, const std::string& text,
                std::string_view option) {
  errno = 0;
  std::ofstream out(file, std::ios::binary);
  out << text;
  out.close();
  if (!out) {
    throw UsageError(fmt::format("{}{}cannot write {}: {}", option, option.empty() ? "" : ": ",
                                 file.string(), std::strerror(errno)));
  }
}

std::filesystem::path executable() { return std::filesystem::read_symlink("/proc/self/exe"); }

namespace {

/// One of the names that an option takes.
std::string one_of(std::string_view option, std::string_view given,
                   const std::vector<std::string>& names) {
  if (std::find(names.begin(), names.end(), given) != names.end()) return std::string(given);
  std::string expected = names.front();
  for (std::size_t i = 1; i < names.size(); ++i) {
    expected += (i + 1 < names.size() ? ", " : " or ") + names[i];
  }
  throw UsageError(fmt::format("{}: expected {}, got \"{}\"{}", option, expected, given,
                               did_you_mean(given, names)));
}

std::size_t law_named(std::string_view option, std::string_view name) {
  if (const Law* law = find_law(name)) return index_of(*law);
  std::vector<std::string> known;
  for (const Law& law : laws()) known.emplace_back(law.name);
  throw UsageError(fmt::format("{}: no law is named \"{}\"{} (`{}` lists them)", option, name,
                               did_you_mean(name, known), again("laws")));
}

}  // namespace

Mix parse_mix(std::string_view name) {
  return one_of("--mix", name, {"standard", "wide"}) == "wide" ? Mix::wide : Mix::standard;
}

void LawChoice::add_options(Command& command) {
  command.add(
      "--law", named, "NAME",
      "Judge only by this law, and by the laws about failing runs; may be given several times");
  command.add("--without", without, "NAME", "Leave out this law; may be given several times");
}

LawSet LawChoice::chosen() const {
  LawSet chosen = named.empty() ? all_laws() : LawSet();
  for (const std::string& name : named) chosen.set(law_named("--law", name));
  for (const std::string& name : without) {
    const std::size_t law = law_named("--without", name);
    if (std::find(named.begin(), named.end(), name) != named.end()) {
      throw UsageError(
          fmt::format("--law and --without both name {}: give it to one of them", name));
    }
    chosen.reset(law);
  }
  if (chosen.none()) throw UsageError("--law and --without leave no law to judge by");
  return chosen;
}

LawSet LawChoice::failures() const {
  LawSet failures = failure_laws();
  for (const std::string& name : without) failures.reset(law_named("--without", name));
  return failures;
}

std::uint64_t parse_whole(std::string_view option, const std::string& text, std::uint64_t least,
                          std::string_view or_else) {
  std::uint64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || rest != end || value < least) {
    throw UsageError(fmt::format("{}: expected a whole number from {} to 2^64 - 1{}, got \"{}\"",
                                 option, least, or_else, text));
  }
  return value;
}

namespace {

struct Word {
  const char* name;
  std::string SubjectChoice::*value;
};
constexpr Word kWords[] = {{"subject", &SubjectChoice::name},
                           {"limit", &SubjectChoice::limit},
                           {"python", &SubjectChoice::python},
                           {"device", &SubjectChoice::device},
                           {"profile", &SubjectChoice::profile}};

/// Whether the name starts nothing but what is known by it: a file from elsewhere may say it. The
/// words behind a framework are those of a shell.
bool starts_no_command(const std::string& name) {
  const auto harmless = [](unsigned char c) {
    return std::isalnum(c) != 0 || std::string_view(" ._-/:").find(c) != std::string_view::npos;
  };
  return is_in_process(name) ||
         (framework_command(name, "python3") && std::all_of(name.begin(), name.end(), harmless));
}

}  // namespace

Option SubjectChoice::add_options(Command& command) {
  auto variant = std::make_shared<std::string>();
  const Option subject = command.add(
      "--subject", name, "NAME",
      "Implementation to test: one that `rematch subjects` lists, a checkpoint() function of your "
      "own for PyTorch (mine.py:FUNCTION), or a command in quotes");
  const Option only = command.add(
      "--variant", *variant, "VARIANT",
      "Variant of checkpointing that mine.py:FUNCTION is: reentrant (a function of autograd), "
      "non_reentrant, or both (default)");
  command.add("--python", python, "PATH",
              "Python that runs a framework or mine.py:FUNCTION (default: the one that `ci/setup "
              "--frameworks` made, or python3 if it has the framework)");
  const Option on =
      command.add("--device", device, "DEVICE", "Device that the engine runs on: cpu or cuda");
  command.add("--limit", limit, "TIME",
              "Time limit for one run of a subject in another process, or for one case on a device "
              "(default 60s; 600s for a subject that compiles its models)");
  command.parsed([this, variant, subject, only, on] {
    named = subject.given();
    placed = on.given();
    if (!only.given()) return;
    // A word behind the name, as adapters take them, so that all that names the subject has it.
    if (is_in_process(name) || !framework_command(name, "python3")) {
      throw UsageError(
          fmt::format("--variant has no effect on {}: it is for mine.py:FUNCTION", name));
    }
    name += " --variant " + one_of("--variant", *variant, {"reentrant", "non_reentrant", "both"});
  });
  return subject;
}

ProcessLimits SubjectChoice::limits() const {
  ProcessLimits limits;
  limits.stop = &stop_requested;
  if (!limit.empty())
    limits.run_seconds = limits.compiling_run_seconds = parse_duration("--limit", limit);
  return limits;
}

void SubjectChoice::add_profile(Command& command) {
  command.add("--profile", profile, "PROFILE",
              "Known bugs and documented limits of the subject: the name of a subject whose "
              "profile comes with rematch, a file, or none (default: the subject's own)");
}

bool SubjectChoice::names_profile() const {
  return profile.empty() && !is_in_process(name) && !framework_command(name, "python3");
}

Profile SubjectChoice::known(const std::string& declared) const {
  if (profile == "none") return {};
  if (profile.empty()) {
    const auto own = framework_profile(name);
    const auto file = own || declared.empty() ? own : framework_profile(declared);
    if (!file && !declared.empty()) {
      throw SubjectBroken(fmt::format("{}: hello.profile: no profile comes with rematch for \"{}\"",
                                      name, declared));
    }
    return file ? load_profile(*file) : Profile();
  }
  std::error_code ignored;
  if (std::filesystem::is_regular_file(profile, ignored)) return load_profile(profile);
  if (const auto file = framework_profile(profile)) return load_profile(*file);
  std::vector<std::string> known{"none"};
  for (const auto& [subject, ignored_subject] : known_frameworks().subjects) {
    if (framework_profile(subject)) known.push_back(subject);
  }
  throw UsageError(
      fmt::format("--profile: expected a file, none, or a framework such as pytorch, got \"{}\"{}",
                  profile, did_you_mean(profile, known)));
}

std::unique_ptr<Subject> SubjectChoice::make() const {
  if (!limit.empty() && device == "cpu" && is_in_process(name)) {
    throw UsageError(
        fmt::format("--limit has no effect on {}: it runs in this process on the CPU", name));
  }
  if (!python.empty() && !framework_command(name, python)) {
    throw UsageError(fmt::format(
        "--python has no effect on {}: it is for frameworks and mine.py:FUNCTION", name));
  }
  return make_subject(name, device_named(device), limits(), python);
}

std::string SubjectChoice::options() const {
  const SubjectChoice usual;
  std::string text;
  for (const auto& [option, value] : kWords) {
    if (this->*value != usual.*value) {
      text += fmt::format(" --{} {}", option, shell_word(this->*value));
    }
  }
  return text;
}

Options SubjectChoice::words() const {
  const SubjectChoice usual;
  Options words{{kWords[0].name, name}};
  for (const auto& [option, value] : kWords) {
    if (this->*value != usual.*value) words[option] = this->*value;
  }
  return words;
}

void SubjectChoice::take(const Options& words, const std::string& file) {
  if (named) return;
  const SubjectChoice usual;
  SubjectChoice found = *this;
  for (const auto& [option, value] : kWords) {
    const auto word = words.find(option);
    const bool set = this->*value != usual.*value || (placed && value == &SubjectChoice::device);
    if (word != words.end() && !set) found.*value = word->second;
  }
  if (!starts_no_command(found.name)) {
    throw UsageError(
        fmt::format("{} was found with a command, which a file does not start by itself: give{}",
                    file, found.options()));
  }
  *this = found;
}

void CaseChoice::add_options(Command& command) {
  command.add("file", file, "FILE", "A case file, as saved by `check`");
  command.add("--seed", seed, "S", "Seed of the hunt that found the case");
  command.add("--case", number, "K", "Number of the case in that hunt");
  command.add("--mix", mix, "MIX", "Mix of that hunt: standard or wide (default: wide)");
}

void CaseChoice::require() const {
  if (!file.empty() && (!seed.empty() || !number.empty())) {
    throw UsageError("expected a case file, or --seed and --case, got both");
  }
  if (!file.empty() && !mix.empty()) {
    throw UsageError("--mix has no effect on a case file: leave it out");
  }
  if (file.empty() && (seed.empty() || number.empty())) {
    throw UsageError("expected a case file, or --seed S and --case K, got neither");
  }
}

Case CaseChoice::load(const Scope& scope) const {
  require();
  const Mix of_hunt = mix.empty() ? Mix::wide : parse_mix(mix);
  if (!file.empty()) {
    Case c = load_case(file);
    try {
      check_options(c.options, scope.options);
    } catch (const std::invalid_argument& unknown) {
      throw UsageError(fmt::format("{}: {}", file, unknown.what()));
    }
    if (const std::string names = lacking(scope, c); !names.empty()) {
      throw UsageError(fmt::format("{}: the subject does not implement:{}", file, names));
    }
    return c;
  }
  return generate_case(of_hunt, parse_whole("--seed", seed, 0), parse_whole("--case", number, 0),
                       scope);
}

Options CaseChoice::found_with() const {
  Options words;
  if (!file.empty()) (void)load_case(file, &words);
  for (auto& [option, word] : words) {
    // They are printed.
    std::replace_if(
        word.begin(), word.end(), [](unsigned char c) { return std::iscntrl(c) != 0; }, ' ');
  }
  return words;
}

std::string LawChoice::options() const {
  std::string text;
  for (const std::string& name : named) text += " --law " + name;
  for (const std::string& name : without) text += " --without " + name;
  return text;
}

std::string CaseChoice::options() const {
  if (!file.empty()) return shell_word(file);
  return fmt::format("--mix {} --seed {} --case {}", mix.empty() ? "wide" : mix, seed, number);
}

std::string CaseChoice::name() const {
  if (!file.empty()) return file;
  return fmt::format("case {} of seed {}, {} mix", number, seed, mix.empty() ? "wide" : mix);
}

}  // namespace rematch::cli
