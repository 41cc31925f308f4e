#include "properties/cli/finding.h"

#include <fmt/format.h>

#include <cctype>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "engine/checkpoint/tensor_hash.h"
#include "properties/case/describe.h"
#include "properties/case/json.h"
#include "properties/hunt/regressions.h"
#include "properties/output/terminal.h"

namespace rematch::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string indented(const std::string& text) {
  std::string result = "  ";
  for (const char c : text) {
    result += c;
    if (c == '\n') result += "  ";
  }
  while (!result.empty() && (result.back() == ' ' || result.back() == '\n')) result.pop_back();
  return result + "\n";
}

}  // namespace

std::string file_name(const std::string& subject, const Finding& finding, std::uint64_t seed) {
  const std::string text = to_json(finding.smallest);
  const std::uint64_t hash = hash_bytes(std::as_bytes(std::span(text)));
  return fmt::format("rematch-{}-{}-seed{}-case{}-{:08x}.json", plain_name(subject),
                     finding.violation.law, seed, finding.index, hash >> 32);
}

std::string plain_name(std::string_view text) {
  std::string name;
  for (const char c : text) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '_';
    if (plain) name += c;
    if (!plain && !name.empty() && name.back() != '-') name += '-';
  }
  constexpr std::size_t kLongest = 60;
  name.resize(std::min(name.size(), kLongest));
  while (!name.empty() && name.back() == '-') name.pop_back();
  return name;
}

std::string text_for_script(const Violation& v) {
  return fmt::format("{}: {}\nat: {}\nexpected: {}\ngot: {}", v.law, statement_of(v.law), v.place,
                     v.expected, v.got);
}

std::string statement_of(std::string_view law) { return std::string(find_law(law)->statement); }

std::string text_of(const Versions& versions) {
  std::string text;
  for (const auto& [name, version] : versions) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, version);
  }
  return text;
}

std::string text_of(const Report& r) {
  const Paint paint(colour_wanted(1));
  std::string text = fmt::format(
      "{} {}{}\n  {}\n\n", paint.red("VIOLATED"), paint.bold(r.violation.law),
      r.count > 1 ? fmt::format(", {} cases", r.count) : "", statement_of(r.violation.law));
  text += fmt::format("  at        {}\n  expected  {}\n  got       {}\n\n", r.violation.place,
                      r.violation.expected, r.violation.got);
  text += indented(describe(r.smallest)) + "\n";
  text += fmt::format("  again:    {}\n", paint.cyan(r.again));
  if (!r.unshrunk.empty() && r.unwritable.empty())
    text += fmt::format("  unshrunk: {}\n", r.unshrunk);
  if (!r.versions.empty()) text += fmt::format("  versions: {}\n", text_of(r.versions));
  return text + "\n";
}

nlohmann::ordered_json json_of(const Report& r) {
  Json j;
  j["law"] = r.violation.law;
  j["place"] = r.violation.place;
  j["expected"] = r.violation.expected;
  j["got"] = r.violation.got;
  j["cases"] = r.count;
  j["case"] = Json::parse(to_json(r.smallest));
  j["file"] = r.unwritable.empty() ? Json(r.file.string()) : Json(nullptr);
  j["saved_case"] = r.saved;
  j["again"] = r.again;
  if (!r.unshrunk.empty()) j["unshrunk"] = r.unshrunk;
  if (!r.versions.empty()) j["versions"] = r.versions;
  return j;
}

void reserve_file(Report& r) {
  if (r.saved) return;
  errno = 0;
  if (std::ofstream(r.file, std::ios::app)) return;
  r.unwritable =
      fmt::format("cannot write the case file '{}': {}", r.file.string(), std::strerror(errno));
  r.again = r.unshrunk;
}

void save(const Report& report, bool text) {
  if (report.saved) return;
  try {
    if (!report.unwritable.empty()) throw std::runtime_error(report.unwritable);
    save_case(report.smallest, report.file);
  } catch (const std::exception& error) {
    // On a full disk the reserved name may be an empty file.
    std::error_code ignored;
    if (std::filesystem::is_empty(report.file, ignored) && !ignored) {
      std::filesystem::remove(report.file, ignored);
    }
    print_error(fmt::format("rematch: {}; the finding stands\n", error.what()));
    if (!text) return;
    print_out(fmt::format("The case that could not be written to {}:\n{}\n", report.file.string(),
                          to_json(report.smallest)));
  }
}

}  // namespace rematch::cli
