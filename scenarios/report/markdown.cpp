#include "scenarios/report/render.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "properties/output/terminal.h"

namespace rematch::scenarios {
namespace {

constexpr int kColumns = 118;

std::string cell(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '|') out += '\\';
    out += c;
  }
  return out;
}

std::string row(const std::vector<std::string>& cells) {
  std::string out = "|";
  for (const std::string& text : cells) out += " " + cell(text) + " |";
  return out + "\n";
}

std::string table(const Table& table) {
  std::string out = table.title().empty() ? "" : fmt::format("**{}**\n\n", table.title());
  out += row(table.columns()) + "|";
  for (std::size_t i = 0; i < table.columns().size(); ++i) {
    out += table.is_numeric(i) ? " ---: |" : " --- |";
  }
  out += "\n";
  for (const auto& cells : table.rows()) out += row(cells);
  return out;
}

/// Whether Markdown would take a line that begins so for a list, a heading or a quotation.
bool begins_block(std::string_view line) {
  const std::string_view word = line.substr(0, line.find(' '));
  if (word.find_first_not_of("-+*#>=") == std::string_view::npos) return true;
  const std::size_t digits = word.find_first_not_of("0123456789");
  return digits != 0 && digits + 1 == word.size() && (word.back() == '.' || word.back() == ')');
}

/// Text whose lines are not too long to be read in a diff.
std::string paragraph(std::string_view text, std::string_view indent = "") {
  std::string out;
  for (const std::string& line : cli::wrapped(text, kColumns - static_cast<int>(indent.size()))) {
    if (!out.empty()) out += begins_block(line) ? " " : "\n" + std::string(indent);
    out += line;
  }
  return out + "\n";
}

std::string text_of(const Scenario& scenario, const Report& report, int columns,
                    bool with_measured) {
  std::string out = fmt::format("# {}\n\n", scenario.name);
  out += paragraph(fmt::format("> {}", scenario.question), "> ") + "\n";
  out += paragraph(fmt::format("Source: {}", scenario.source)) + "\n";
  out += paragraph(fmt::format("**In short.** {}", scenario.answer));
  bool in_list = false;
  for (const Report::Item& item : report.items()) {
    const Claim* claim = std::get_if<Claim>(&item);
    if (std::holds_alternative<Measured>(item) && !with_measured) continue;
    if (!(in_list && claim != nullptr)) out += "\n";
    in_list = claim != nullptr;
    if (claim != nullptr) {
      out += paragraph(fmt::format("- [{}] {}", claim->holds ? 'x' : ' ', claim->sentence), "  ");
    } else if (const auto* words = std::get_if<Paragraph>(&item)) {
      out += paragraph(words->markdown);
    } else if (const auto* rows = std::get_if<Table>(&item)) {
      out += table(*rows);
    } else if (const auto* measured = std::get_if<Measured>(&item)) {
      out += "Measured: " + measured->line + "\n";
    } else if (const auto* chart = std::get_if<Chart>(&item)) {
      out += fmt::format("**{}**\n\n{}", chart->title,
                         chart_text(*chart, cli::scale_of({chart, 1}), columns, cli::Paint(false)));
    }
  }
  return out + "\n" +
         paragraph(fmt::format("**In PyTorch.** {} ({}.)", scenario.advice, scenario.probes()));
}

}  // namespace

std::string page(const Scenario& scenario, const Report& report, int columns) {
  return text_of(scenario, report, columns, true);
}

std::string digest(const Scenario& scenario, const Report& report) {
  // FNV-1a, 64 bits.
  std::uint64_t hash = 0xcbf29ce484222325U;
  const auto add = [&](std::string_view text) {
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  };
  add(text_of(scenario, report, kColumns, false));
  int charts = 0;
  for (const Report::Item& item : report.items()) {
    const auto* chart = std::get_if<Chart>(&item);
    if (chart == nullptr) continue;
    ++charts;
    // A picture rounds.
    for (const cli::Series& s : chart->series) add(fmt::format("{:.6g}", fmt::join(s.y, " ")));
  }
  return fmt::format(R"("{}": {{"claims": {}, "charts": {}, "digest": "{:016x}"}})", scenario.name,
                     report.claims(), charts, hash);
}

}  // namespace rematch::scenarios
