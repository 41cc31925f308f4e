#include "bench/compare/result_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>
#include <utility>

#include "bench/compare/input.h"

namespace rematch::compare {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "rematch_";
constexpr std::string_view kFormat = "1";
/// A regular expression over longer ones could exhaust the stack.
constexpr std::size_t kLongestName = 1000;
constexpr std::string_view kOfCommits =
    "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz._-+";

/// Fields of an entry that Google Benchmark writes itself; the other numbers are counters.
constexpr std::array<std::string_view, 17> kOwnFields{"family_index", "per_family_instance_index",
                                                      "repetitions",  "repetition_index",
                                                      "threads",      "iterations",
                                                      "real_time",    "cpu_time",
                                                      "time_unit",    "name",
                                                      "run_name",     "run_type",
                                                      "label",        "error_occurred",
                                                      "skipped",      "error_message",
                                                      "skip_message"};

double nanoseconds_per(const Input& unit) {
  const std::string name = unit.text();
  if (name == "ns") return 1;
  if (name == "us") return 1e3;
  if (name == "ms") return 1e6;
  if (name == "s") return 1e9;
  unit.fail("ns, us, ms or s");
}

std::string plain_name(std::string name) {
  for (;;) {
    bool is_shorter = false;
    for (const std::string_view clock : {"/real_time", "/manual_time"}) {
      if (!name.ends_with(clock)) continue;
      name.resize(name.size() - clock.size());
      is_shorter = true;
    }
    if (is_shorter) continue;
    const std::size_t at = name.rfind("/repeats:");
    if (at == std::string::npos ||
        name.find_first_not_of("0123456789", at + 9) != std::string::npos) {
      return name;
    }
    name.resize(at);
  }
}

void read_context(const Input& context, ResultFile& file) {
  file.date = context.at("date").text();
  bool is_ours = false;
  for (const auto& [name, value] : context.fields()) {
    if (!name.starts_with(kPrefix)) continue;
    is_ours = is_ours || name != "rematch_times";
    const std::string text = value.text();
    if (name == "rematch_format") {
      if (text != kFormat) value.fail(fmt::format("format {}", kFormat));
    } else if (name == "rematch_commit") {
      if (text.find_first_not_of(kOfCommits) != std::string::npos) value.fail("a commit id");
      file.commit = text;
    } else if (name == "rematch_dirty") {
      file.dirty = text != "0" && text != "no" && text != "false" && !text.empty();
    } else if (name == "rematch_times") {
      if (text != "yes" && text != "no") value.fail("yes or no");
      file.has_times = text == "yes";
    } else if (name == "rematch_timeline") {
      file.timelines = (fs::path(file.path).parent_path() / text).string();
    } else {
      file.fingerprint[name] = text;
    }
  }
  if (is_ours) context.at("rematch_format");
  file.has_fingerprint = !file.fingerprint.empty();
  if (file.has_fingerprint) return;
  file.fingerprint["host_name"] = context.at("host_name").text();
  file.fingerprint["num_cpus"] = std::to_string(context.at("num_cpus").whole());
  file.fingerprint["library_build_type"] = context.at("library_build_type").text();
}

void read_counters(const Input& entry, BenchmarkRun& run) {
  for (const auto& [name, value] : entry.fields()) {
    if (std::find(kOwnFields.begin(), kOwnFields.end(), name) != kOwnFields.end()) continue;
    if (is_exact_counter(name)) {
      run.exact[name].push_back(value.whole());
    } else if (value.is_number()) {
      run.other[name].push_back(value.number());
    }
  }
}

/// What a run says that gave up or was skipped (the latter since Google Benchmark 1.8).
std::optional<std::string> failure(const Input& entry) {
  for (const auto& [flag, field] :
       {std::pair{"error_occurred", "error_message"}, std::pair{"skipped", "skip_message"}}) {
    const auto failed = entry.find(flag);
    if (!failed || !failed->is_true()) continue;
    const auto message = entry.find(field);
    return message && !message->text().empty() ? message->text() : "no message";
  }
  return std::nullopt;
}

struct Seen {
  std::set<std::pair<std::string, std::int64_t>> repetitions;
  std::map<std::string, std::string> full_names;
};

void read_entry(const Input& entry, ResultFile& file, Seen& seen) {
  const std::string type = entry.at("run_type").text();
  if (type == "aggregate") return;
  if (type != "iteration") entry.at("run_type").fail("iteration or aggregate");
  const Input name = entry.at("name");
  const std::string plain = plain_name(name.text());
  if (plain.empty() || plain.size() > kLongestName) {
    name.fail(fmt::format("a name of 1 to {} bytes", kLongestName));
  }
  if (seen.full_names.emplace(plain, name.text()).first->second != name.text()) {
    name.fail(fmt::format("one benchmark named {}", plain));
  }
  auto at = std::find_if(file.benchmarks.begin(), file.benchmarks.end(),
                         [&](const BenchmarkRun& run) { return run.name == plain; });
  if (at == file.benchmarks.end()) {
    file.benchmarks.push_back({plain, {}, {}, {}, {}, "", ""});
    at = file.benchmarks.end() - 1;
  }
  if (const auto index = entry.find("repetition_index")) {
    // A run that failed has no index of its own.
    const std::int64_t repetition = index->is_number() ? index->whole() : 0;
    if (!seen.repetitions.emplace(plain, repetition).second) {
      index->fail("each repetition of a benchmark once");
    }
  }
  if (const auto failed = failure(entry)) {
    at->error = *failed;
    return;
  }
  const double unit = nanoseconds_per(entry.at("time_unit"));
  const double real = entry.at("real_time").positive() * unit;
  const double cpu = entry.at("cpu_time").number() * unit;
  if (file.has_times) {
    at->real_ns.push_back(real);
    at->cpu_ns.push_back(cpu);
  }
  if (const auto label = entry.find("label"); label && at->label.empty()) at->label = label->text();
  read_counters(entry, *at);
}

}  // namespace

bool is_exact_counter(std::string_view name) {
  return std::find(kExactCounters.begin(), kExactCounters.end(), name) != kExactCounters.end();
}

bool counts_bytes(std::string_view name) { return name.ends_with("_bytes"); }

const BenchmarkRun* ResultFile::find(std::string_view name) const {
  for (const BenchmarkRun& run : benchmarks) {
    if (run.name == name) return &run;
  }
  return nullptr;
}

ResultFile result_from_text(std::string_view text, const std::string& path) {
  const nlohmann::json json = parse_json(text, path);
  const Input root(json, path);
  ResultFile file;
  file.path = path;
  const auto context = root.find("context");
  const auto benchmarks = root.find("benchmarks");
  if (!context || !benchmarks) {
    root.fail(
        "a result file: an object with \"context\" and \"benchmarks\", as a benchmark program "
        "writes it with --benchmark_out=FILE --benchmark_out_format=json");
  }
  read_context(*context, file);
  Seen seen;
  const std::vector<Input> entries = benchmarks->elements();
  for (const Input& entry : entries) read_entry(entry, file, seen);
  if (file.benchmarks.empty() && !entries.empty()) {
    benchmarks->fail("repetitions (run without --benchmark_report_aggregates_only)");
  }
  return file;
}

ResultFile read_result_file(const std::string& path) {
  return result_from_text(read_text(path), path);
}

std::vector<std::string> expand_folders(const std::vector<std::string>& paths) {
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    std::error_code error;
    if (!fs::is_directory(path, error)) {
      files.push_back(path);
      continue;
    }
    std::vector<std::string> inside;
    for (const auto& entry : fs::directory_iterator(path, error)) {
      if (entry.path().extension() == ".json") inside.push_back(entry.path().string());
    }
    if (error) throw InputError(fmt::format("{}: cannot be read: {}", path, error.message()));
    if (inside.empty()) {
      throw InputError(fmt::format("{}: expected result files in the folder, got no *.json", path));
    }
    std::sort(inside.begin(), inside.end());
    files.insert(files.end(), inside.begin(), inside.end());
  }
  return files;
}

}  // namespace rematch::compare
