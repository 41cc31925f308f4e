#include "properties/cli/finding.h"

#include <fmt/format.h>

#include <algorithm>
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

/// The hash of the case makes a name stand for one content.
std::string file_name_with(const std::string& subject, const Finding& finding,
                           const std::string& found_in) {
  const std::string text = to_json(finding.smallest);
  const std::uint64_t hash = hash_bytes(std::as_bytes(std::span(text)));
  return fmt::format("rematch-{}-{}-{}-{:08x}.json", plain_name(subject), finding.violation.law,
                     found_in, hash >> 32);
}

/// A field of a finding: further lines stand below the first.
std::string field(std::string_view name, std::string_view text) {
  return fmt::format("  {:<9} {}\n", name, hanging(first_lines(text), 12));
}

}  // namespace

std::string first_lines(std::string_view text, std::size_t most) {
  while (text.ends_with('\n')) text.remove_suffix(1);
  std::size_t end = 0;
  for (std::size_t lines = 0; lines < most; ++lines) {
    const std::size_t next = text.find('\n', end);
    if (next == std::string_view::npos) return std::string(text);
    end = next + 1;
  }
  const auto more = static_cast<std::uint64_t>(
      std::count(text.begin() + static_cast<std::ptrdiff_t>(end), text.end(), '\n') + 1);
  return fmt::format("{}({} in full with replay)", text.substr(0, end),
                     counted(more, "further line"));
}

std::string hanging(std::string_view text, int indent) {
  while (text.ends_with('\n')) text.remove_suffix(1);
  std::string lines;
  for (const char c : text) {
    lines += c;
    if (c == '\n') lines.append(static_cast<std::size_t>(indent), ' ');
  }
  return lines;
}

std::string first_line(std::string_view text) {
  while (text.ends_with('\n')) text.remove_suffix(1);
  const std::size_t end = text.find('\n');
  return std::string(text.substr(0, end)) + (end == std::string_view::npos ? "" : " ...");
}

std::string file_name(const std::string& subject, const Finding& finding, std::uint64_t seed) {
  return file_name_with(subject, finding, fmt::format("seed{}-case{}", seed, finding.index));
}

std::string file_name(const std::string& subject, const Finding& finding,
                      const std::string& saved_case) {
  return file_name_with(subject, finding, "saved-" + plain_name(saved_case));
}

std::filesystem::path known_file(const CheckArguments& a, const std::string& id) {
  return a.save_folder() /
         fmt::format("known-{}-{}.json", plain_name(a.subject.name), plain_name(id));
}

void add_report(Report report, std::vector<Report>& reports) {
  const auto same = [&](const Report& other) {
    Case c = other.smallest;
    c.seed = report.smallest.seed;
    return other.violation.law == report.violation.law && c == report.smallest;
  };
  const auto known = std::find_if(reports.begin(), reports.end(), same);
  if (known == reports.end()) {
    reports.push_back(std::move(report));
  } else {
    known->count += report.count;
  }
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
  const Law& law = *find_law(r.violation.law);
  std::string text =
      fmt::format("{} {}{}\n  {}\n  If not: {}\n\n", paint.red("VIOLATED"), paint.bold(law.name),
                  r.count > 1 ? fmt::format(", {} cases", r.count) : "", law.statement, law.harm);
  text += field("at", r.violation.place) + field("expected", r.violation.expected) +
          field("got", r.violation.got) + "\n";
  text += fmt::format("  {}\n\n", hanging(describe(r.smallest), 2));
  if (!r.saved_case.empty()) text += fmt::format("  found in: {}\n", r.saved_case.string());
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
  j["saved_case"] = !r.saved_case.empty();
  if (!r.saved_case.empty()) j["found_in"] = r.saved_case.string();
  j["again"] = r.again;
  if (!r.unshrunk.empty()) j["unshrunk"] = r.unshrunk;
  if (!r.versions.empty()) j["versions"] = r.versions;
  return j;
}

void reserve_file(Report& r) {
  if (r.is_saved()) return;
  errno = 0;
  if (std::ofstream(r.file, std::ios::app)) return;
  r.unwritable =
      fmt::format("cannot write the case file '{}': {}", r.file.string(), std::strerror(errno));
  r.again = r.unshrunk;
}

void save(const Report& report, bool text) {
  if (report.is_saved()) return;
  try {
    if (!report.unwritable.empty()) throw std::runtime_error(report.unwritable);
    save_case(report.smallest, report.file, report.found_with);
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
