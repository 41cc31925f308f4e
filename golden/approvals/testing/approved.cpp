#include "golden/approvals/testing/approved.h"

#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "properties/output/terminal.h"

namespace rematch::golden {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostLines = 30;

/// One line an entry, so that a diff of the file reads like a list.
std::string text_of(const Json& entries) {
  std::string text = fmt::format(
      "{{\n\"format\": {},\n\"command\": \"build/release/bin/golden_tests '[approved]'; "
      "golden/approve\",\n\"entries\": {{\n",
      kApprovedFormat);
  std::size_t left = entries.size();
  for (const auto& [name, value] : entries.items()) {
    text += Json(name).dump() + ": " + value.dump() + (--left > 0 ? ",\n" : "\n");
  }
  return text + "}\n}\n";
}

void write(const fs::path& path, const std::string& text) {
  // A reader sees all of it or nothing.
  const fs::path part = path.string() + ".part";
  std::ofstream out(part, std::ios::binary);
  out << text;
  out.close();
  if (!out) throw std::runtime_error("cannot write " + part.string());
  fs::rename(part, path);
}

std::string amount(std::string_view counter, std::int64_t value) {
  const bool is_bytes = counter.ends_with("_bytes");
  return cli::grouped(value) + (is_bytes ? " B" : "");
}

std::string change(std::string_view what, std::int64_t before, std::int64_t now) {
  const bool rose = now > before;
  return fmt::format("{} by {}", rose ? "rose" : "fell",
                     amount(what, rose ? now - before : before - now));
}

/// The use of the bytes of the peak, and its place.
std::string peak_difference(const Json& before, const Json& now) {
  std::string text;
  for (const auto& [tag, bytes] : now.at("bytes").items()) {
    const auto value = bytes.get<std::int64_t>();
    const std::int64_t was = before.at("bytes").value(tag, std::int64_t{0});
    if (value != was) text += fmt::format("; {} in it {}", tag, change("_bytes", was, value));
  }
  for (const auto& [tag, bytes] : before.at("bytes").items()) {
    if (now.at("bytes").contains(tag)) continue;
    text += fmt::format("; {} in it {}", tag, change("_bytes", bytes.get<std::int64_t>(), 0));
  }
  const auto place = [](const Json& peak) { return peak.at("place").get<std::string>(); };
  const bool moved = place(before) != place(now);
  text += fmt::format("; reached by {} for {} in the {}",
                      amount("_bytes", now.at("allocated").get<std::int64_t>()),
                      now.at("for").get<std::string>(), place(now));
  if (moved) text += ", before in the " + place(before);
  return text;
}

std::string sentence(const std::string& benchmark, const std::string& counter, const Json& before,
                     const Json& now) {
  const auto was = before.get<std::int64_t>();
  const auto is = now.get<std::int64_t>();
  return fmt::format("{} of {} {}, from {} to {}", counter, benchmark, change(counter, was, is),
                     amount(counter, was), amount(counter, is));
}

void compare_counts(const std::string& benchmark, const Json& before, const Json& now,
                    std::vector<std::string>& lines) {
  const std::size_t before_counts = lines.size();
  for (const auto& [counter, value] : now.items()) {
    if (counter == "peak") continue;
    if (!before.contains(counter)) {
      lines.push_back(fmt::format("{} of {} is new: {}", counter, benchmark,
                                  amount(counter, value.get<std::int64_t>())));
    } else if (before.at(counter) != value) {
      lines.push_back(sentence(benchmark, counter, before.at(counter), value));
      if (counter == "peak_bytes")
        lines.back() += peak_difference(before.at("peak"), now.at("peak"));
    }
  }
  for (const auto& [counter, value] : before.items()) {
    if (now.contains(counter)) continue;
    lines.push_back(fmt::format("{} of {} is gone, was {}", counter, benchmark,
                                amount(counter, value.get<std::int64_t>())));
  }
  // Nothing else tells of a peak that is as high and of something else.
  if (lines.size() == before_counts && before.at("peak") != now.at("peak")) {
    lines.push_back(fmt::format("the peak of {} is as high, but of something else{}", benchmark,
                                peak_difference(before.at("peak"), now.at("peak"))));
  }
}

using Compare = void (*)(const std::string&, const Json&, const Json&, std::vector<std::string>&);

std::vector<std::string> differences(const Json& approved, const Json& now, Compare compare) {
  std::vector<std::string> lines;
  for (const auto& [name, value] : now.items()) {
    if (!approved.contains(name)) {
      lines.push_back(name + " is new");
    } else if (approved.at(name) != value) {
      compare(name, approved.at(name), value, lines);
    }
  }
  for (const auto& [name, value] : approved.items()) {
    if (!now.contains(name)) lines.push_back(name + " is gone");
  }
  return lines;
}

}  // namespace

std::vector<std::string> count_differences(const Json& approved, const Json& now) {
  return differences(approved, now, compare_counts);
}

std::vector<std::string> entry_differences(const Json& approved, const Json& now) {
  return differences(
      approved, now,
      [](const std::string& name, const Json& was, const Json& is,
         std::vector<std::string>& lines) {
        lines.push_back(fmt::format("{}: was {}, is {}", name, was.dump(), is.dump()));
      });
}

std::string difference_from_approved(const std::string& folder, const std::string& name,
                                     const Json& entries, InWords words) {
  const fs::path approved = fs::path(folder) / (name + ".json");
  const fs::path received = fs::path(folder) / (name + ".received.json");
  const std::string text = text_of(entries);
  std::vector<std::string> lines;
  std::ifstream in(approved, std::ios::binary);
  if (!in) {
    lines.push_back("there is no approved file yet");
  } else {
    const std::string before{std::istreambuf_iterator<char>(in), {}};
    if (before == text) {
      fs::remove(received);
      return "";
    }
    const Json file = Json::parse(before);
    if (file.at("format") != kApprovedFormat) {
      throw std::runtime_error(fmt::format("{}: format {} expected, got {}", approved.string(),
                                           kApprovedFormat, file.at("format").dump()));
    }
    lines = words(file.at("entries"), entries);
    // The text differs all the same, so something does.
    if (lines.empty()) lines.push_back("the same entries, written or ordered in another way");
  }
  write(received, text);
  std::string out = fmt::format("differs from {}:\n", approved.string());
  for (std::size_t i = 0; i < std::min(lines.size(), kMostLines); ++i)
    out += "  " + lines[i] + "\n";
  if (lines.size() > kMostLines) out += fmt::format("  and {} more\n", lines.size() - kMostLines);
  return out + fmt::format("What came is in {}. If that is what it should be: golden/approve\n",
                           received.string());
}

std::string difference_from_approved(const std::string& name, const Json& entries, InWords words) {
  return difference_from_approved(REMATCH_SOURCE_DIR "/golden/approvals", name, entries, words);
}

}  // namespace rematch::golden
