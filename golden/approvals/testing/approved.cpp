#include "golden/approvals/testing/approved.h"

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>

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

void compare(const std::string& place, const Json& approved, const Json& now,
             std::vector<std::string>& lines) {
  if (!approved.is_object() || !now.is_object()) {
    if (approved != now)
      lines.push_back(fmt::format("{}: was {}, is {}", place, approved.dump(), now.dump()));
    return;
  }
  const auto inside = [&](const std::string& name) {
    return place.empty() ? name : place + ": " + name;
  };
  for (const auto& [name, value] : now.items()) {
    if (approved.contains(name)) {
      compare(inside(name), approved.at(name), value, lines);
    } else {
      lines.push_back(inside(name) + " is new: " + value.dump());
    }
  }
  for (const auto& [name, value] : approved.items()) {
    if (!now.contains(name)) lines.push_back(inside(name) + " is gone, was " + value.dump());
  }
}

}  // namespace

std::string difference_from_approved(const std::string& folder, const std::string& name,
                                     const Json& entries) {
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
    compare("", file.at("entries"), entries, lines);
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

std::string difference_from_approved(const std::string& name, const Json& entries) {
  return difference_from_approved(REMATCH_SOURCE_DIR "/golden/approvals", name, entries);
}

}  // namespace rematch::golden
