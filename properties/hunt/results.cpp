#include "properties/hunt/results.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <utility>

#include "properties/hunt/tally_json.h"

namespace rematch {
namespace {

using Json = nlohmann::json;
constexpr std::uint64_t kResultsFormat = 5;
constexpr auto kBetweenLines = std::chrono::seconds(1);

[[noreturn]] void failed(const std::filesystem::path& file, std::string_view what) {
  throw std::runtime_error(
      fmt::format("--results: cannot {} {}: {}", what, file.string(), std::strerror(errno)));
}

[[noreturn]] void refuse(const std::filesystem::path& file, std::size_t line,
                         std::string_view expected, const std::string& got) {
  throw std::invalid_argument(
      fmt::format("{}, line {}: expected {}, got {}", file.string(), line, expected, got));
}

/// Whole lines, and how many bytes they take.
struct Lines {
  std::vector<std::string> lines;
  std::uint64_t bytes = 0;
};

/// The beginning of a header's line: JSON's names are in order.
constexpr std::string_view kHeader = "{\"hunt\":{";

/// As many bytes of it as a header begins with; empty if there are none.
std::string beginning_of(const std::filesystem::path& file) {
  std::string text(kHeader.size(), '\0');
  std::ifstream in(file, std::ios::binary);
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(in.gcount()));
  return text;
}

Lines whole_lines(const std::filesystem::path& file) {
  errno = std::filesystem::is_directory(file) ? EISDIR : 0;
  std::ifstream in(file, std::ios::binary);
  if (!in || errno == EISDIR) {
    throw std::invalid_argument(
        fmt::format("cannot read {}: {}", file.string(), std::strerror(errno)));
  }
  Lines found;
  for (std::string line; std::getline(in, line) && !in.eof();) {
    found.bytes += line.size() + 1;
    found.lines.push_back(std::move(line));
  }
  return found;
}

Json parsed(const std::filesystem::path& file, std::size_t line, const std::string& text) {
  try {
    return parse_tally_text(text);
  } catch (const std::invalid_argument& error) {
    refuse(file, line, "JSON", error.what());
  }
}

std::uint64_t count(const Json& header, const char* name, const std::filesystem::path& file) {
  const auto found = header.find(name);
  if (found == header.end() || !found->is_number_unsigned()) {
    refuse(file, 1, fmt::format("a number \"{}\"", name), header.dump().substr(0, 100));
  }
  return found->get<std::uint64_t>();
}

Results read_header(const std::filesystem::path& file, const Lines& found) {
  if (found.lines.empty()) refuse(file, 1, "results of a hunt", "nothing");
  const Json header = parsed(file, 1, found.lines[0]);
  if (!header.is_object() || !header.contains("results") || !header.contains("hunt")) {
    refuse(file, 1, "results of a hunt, {\"results\": 4, ...}", found.lines[0].substr(0, 100));
  }
  if (const std::uint64_t format = count(header, "results", file); format != kResultsFormat) {
    refuse(file, 1, fmt::format("format {}", kResultsFormat), fmt::format("format {}", format));
  }
  Results results;
  results.hunt = line_of(header["hunt"]);
  results.shard = {count(header, "shard", file), count(header, "of", file)};
  if (results.shard.number < 1 || results.shard.number > results.shard.of) {
    refuse(file, 1, "a part from 1 to \"of\"", found.lines[0].substr(0, 100));
  }
  return results;
}

Results read_lines(const std::filesystem::path& file, const Lines& found,
                   const HuntOptions& options) {
  Results results = read_header(file, found);
  for (std::size_t i = 1; i < found.lines.size(); ++i) {
    const Json line = parsed(file, i + 1, found.lines[i]);
    if (line.is_object() && line.contains("done")) {
      results.done = true;
    } else if (line.is_object() && line.contains("tally") && !results.done) {
      try {
        results.total.add(tally_from_json(line["tally"]), options.shrunk_per_law);
      } catch (const std::invalid_argument& error) {
        refuse(file, i + 1, "a tally", error.what());
      }
    } else {
      refuse(file, i + 1, results.done ? "nothing behind \"done\"" : "\"tally\" or \"done\"",
             found.lines[i].substr(0, 100));
    }
  }
  return results;
}

/// Hashes in a hunt, and what they stand for. That the seed is another one says more.
constexpr std::pair<std::string_view, std::string_view> kHashes[] = {
    {"known_text", "the profile as it is now, got another text of it"},
    {"first_cases", "the cases that this program makes of its seed, got another commit's"}};

/// The first field in which two hunts differ, with both values.
std::string difference(const std::string& one, const std::string& other) {
  const Json a = Json::parse(one);
  const Json b = Json::parse(other);
  const auto differ = [&](std::string_view name) {
    return a.value(name, Json()) != b.value(name, Json());
  };
  for (const auto& [name, value] : a.items()) {
    const bool is_hash = std::any_of(std::begin(kHashes), std::end(kHashes),
                                     [&key = name](const auto& h) { return h.first == key; });
    if (!is_hash && differ(name)) {
      return fmt::format("{} {}, got {}", name, value.dump(), b.value(name, Json()).dump());
    }
  }
  for (const auto& [name, what] : kHashes) {
    if (differ(name)) return std::string(what);
  }
  return fmt::format("{}, got {}", one, other);
}

std::string numbers(const std::vector<std::uint64_t>& parts) {
  std::string text;
  for (const std::uint64_t part : parts) text += (text.empty() ? "" : ", ") + std::to_string(part);
  return text;
}

}  // namespace

Results read_results(const std::filesystem::path& file, const HuntOptions& options) {
  return read_lines(file, whole_lines(file), options);
}

std::string hunt_of_results(const std::filesystem::path& file) {
  return read_header(file, whole_lines(file)).hunt;
}

Tally merge_results(const std::vector<std::filesystem::path>& files, const std::string& hunt,
                    const HuntOptions& options) {
  std::map<std::uint64_t, std::pair<std::filesystem::path, Results>> parts;
  std::string wrong;
  std::optional<Results> first;
  for (const std::filesystem::path& file : files) {
    Results results = read_results(file, options);
    if (!first) first = results;
    if (const std::string expected = line_of(Json::parse(hunt)); results.hunt != expected) {
      throw std::invalid_argument(fmt::format("{} is of another hunt: expected {}", file.string(),
                                              difference(expected, results.hunt)));
    }
    if (results.shard.of != first->shard.of) {
      throw std::invalid_argument(fmt::format("{}: expected one of {} parts, got one of {}",
                                              file.string(), first->shard.of, results.shard.of));
    }
    const std::uint64_t number = results.shard.number;
    if (!results.done) {
      wrong += fmt::format("\n  part {} is not done ({} cases so far): {}; go on with --resume",
                           number, results.total.cases, file.string());
    }
    const auto [there, added] = parts.try_emplace(number, file, std::move(results));
    if (!added) {
      wrong += fmt::format("\n  part {} is there twice: {} and {}", number,
                           there->second.first.string(), file.string());
    }
  }
  std::vector<std::uint64_t> missing;
  for (std::uint64_t part = 1; part <= first->shard.of; ++part) {
    if (!parts.contains(part)) missing.push_back(part);
  }
  if (!missing.empty()) {
    wrong +=
        fmt::format("\n  of {} parts these are missing: {}", first->shard.of, numbers(missing));
  }
  if (!wrong.empty())
    throw std::invalid_argument("the results are not those of a whole hunt:" + wrong);
  Tally total;
  for (auto& [number, part] : parts) {
    if (options.is_over(total)) break;
    total.add(std::move(part.second.total), options.shrunk_per_law);
  }
  // Without locks, as some network file systems are, one part can have two writers.
  if (!options.is_over(total) && total.cases != options.cases.value_or(total.cases)) {
    throw std::invalid_argument(
        fmt::format("expected {} cases in all parts, got {}: a file was edited or had two writers; "
                    "hunt its part again",
                    *options.cases, total.cases));
  }
  return total;
}

ResultsWriter::ResultsWriter(std::filesystem::path file, const std::string& hunt,
                             const HuntOptions& options, bool resume)
    : file_(std::move(file)), kept_per_law_(options.shrunk_per_law) {
  descriptor_ = ::open(file_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (descriptor_ < 0) failed(file_, "write");
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
    ::close(descriptor_);
    throw std::invalid_argument("--results: another process is writing " + file_.string());
  }
  try {
    const std::string begun = beginning_of(file_);
    if (!begun.empty() && !resume) {
      throw std::invalid_argument("--results: " + file_.string() +
                                  " is there already; --resume goes on where it ends");
    }
    const Lines found = whole_lines(file_);
    // Drops a line that was cut short, once it is clear that the file is ours.
    const auto truncate = [&] {
      if (::ftruncate(descriptor_, static_cast<off_t>(found.bytes)) != 0 ||
          ::lseek(descriptor_, 0, SEEK_END) < 0) {
        failed(file_, "write");
      }
    };
    const auto [number, of] = options.shard;
    if (found.lines.empty()) {
      if (!kHeader.starts_with(begun)) refuse(file_, 1, "results of a hunt", begun);
      truncate();
      before_.hunt = line_of(Json::parse(hunt));
      before_.shard = options.shard;
      append(line_of(Json{{"results", kResultsFormat},
                          {"shard", number},
                          {"of", of},
                          {"hunt", Json::parse(hunt)}}));
      return;
    }
    before_ = read_lines(file_, found, options);
    if (before_.hunt != line_of(Json::parse(hunt))) {
      throw std::invalid_argument(fmt::format("--results: {} is of another hunt: expected {}",
                                              file_.string(), difference(hunt, before_.hunt)));
    }
    if (before_.shard.number != number || before_.shard.of != of) {
      throw std::invalid_argument(
          fmt::format("--results: {}: expected part {} of {}, got part {} of {}", file_.string(),
                      number, of, before_.shard.number, before_.shard.of));
    }
    truncate();
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
}

ResultsWriter::~ResultsWriter() { ::close(descriptor_); }

void ResultsWriter::add(const Tally& tally) {
  if (failed_) return;
  const bool found = !tally.violating.empty() || !tally.known_cases.empty();
  pending_.add(tally, kept_per_law_);
  if (found || std::chrono::steady_clock::now() - written_ >= kBetweenLines) write_pending();
}

void ResultsWriter::finish(bool done) {
  if (failed_) return;
  write_pending();
  if (done && !before_.done) append(R"({"done":true})");
}

void ResultsWriter::write_pending() {
  if (pending_.cases > 0) append(line_of(Json{{"tally", Json::parse(to_json(pending_))}}));
  pending_ = {};
  written_ = std::chrono::steady_clock::now();
}

void ResultsWriter::append(const std::string& line) {
  const std::string text = line + "\n";
  const off_t begin = ::lseek(descriptor_, 0, SEEK_CUR);
  const auto fail = [&] {
    const int why = errno;
    failed_ = true;
    // Where that fails, too, what was cut short counts for nothing.
    static_cast<void>(::ftruncate(descriptor_, begin) == 0);
    errno = why;
    failed(file_, "write");
  };
  for (std::size_t at = 0; at < text.size();) {
    const ssize_t count = ::write(descriptor_, text.data() + at, text.size() - at);
    if (count < 0 && errno != EINTR) fail();
    if (count > 0) at += static_cast<std::size_t>(count);
  }
  if (::fdatasync(descriptor_) != 0 && errno != EINVAL) fail();
}

}  // namespace rematch
