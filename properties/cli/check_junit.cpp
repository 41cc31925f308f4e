#include <fmt/format.h>

#include "properties/cli/check_report.h"

namespace rematch::cli {
namespace {

/// Text as the content of an element or an attribute. XML has no control characters but these.
std::string xml(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '"') {
      out += "&quot;";
    } else {
      out += code >= 0x20 || c == '\n' || c == '\t' ? c : '?';
    }
  }
  return out;
}

struct Suite {
  std::string tests;
  int count = 0;
  int failures = 0;
  int skipped = 0;

  void add(std::string_view name, const std::string& body) {
    ++count;
    tests += fmt::format("    <testcase classname=\"rematch\" name=\"{}\"", xml(name));
    tests += body.empty() ? "/>\n" : fmt::format(">\n{}    </testcase>\n", body);
  }
};

std::string failures_of(std::string_view law, const CheckReport& report) {
  std::string out;
  for (const Report& r : report.reports) {
    if (r.violation.law != law) continue;
    out += fmt::format(
        "      <failure message=\"{}\">at {}\nexpected {}\ngot {}\nagain: {}\n"
        "</failure>\n",
        xml(r.violation.place), xml(r.violation.place), xml(r.violation.expected),
        xml(r.violation.got), xml(r.again));
  }
  return out;
}

}  // namespace

std::string check_junit(const CheckReport& r) {
  Suite suite;
  for (const CheckReport::LawLine& law : r.laws) {
    std::string body = failures_of(law.name, r);
    if (!body.empty()) {
      ++suite.failures;
    } else if (law.checks() == 0) {
      ++suite.skipped;
      body = "      <skipped message=\"no case was judged by this law\"/>\n";
    }
    suite.add(law.name, body);
  }
  std::string troubles;
  for (const std::string& s : r.hunt.shortfalls) troubles += s + "\n";
  for (const std::string& s : r.errors) troubles += s + "\n";
  if (!troubles.empty()) ++suite.failures;
  suite.add("the check itself",
            troubles.empty() ? "" : fmt::format("      <failure>{}</failure>\n", xml(troubles)));
  std::string properties;
  for (const auto& [name, version] : r.hunt.versions) {
    properties +=
        fmt::format("      <property name=\"{}\" value=\"{}\"/>\n", xml(name), xml(version));
  }
  if (!properties.empty()) {
    properties = fmt::format("    <properties>\n{}    </properties>\n", properties);
  }
  return fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
      "<testsuites>\n"
      "  <testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" skipped=\"{}\" time=\"{:.3f}\">\n"
      "{}{}  </testsuite>\n</testsuites>\n",
      xml(fmt::format("rematch check, {}, {} mix, seed {}", r.subject, r.mix, r.seed)), suite.count,
      suite.failures, suite.skipped, r.hunt.seconds, properties, suite.tests);
}

}  // namespace rematch::cli
