#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "properties/case/describe.h"
#include "properties/conform/page.h"
#include "properties/conform/words.h"
#include "properties/output/terminal.h"

namespace rematch::conform {
namespace {

using cli::counted;
using cli::grouped;

/// As text: it ends no cell and no line, and is no markup.
std::string plain(std::string_view text) {
  constexpr std::string_view kMarkup = "\\`*_[]|<>&#";
  std::string out;
  for (const char c : text) {
    if (kMarkup.find(c) != std::string_view::npos) out += '\\';
    out += c == '\n' || c == '\r' ? ' ' : c;
  }
  return out;
}

/// As code, which nothing in it ends.
std::string code(std::string_view text) {
  std::string inner(text);
  std::replace(inner.begin(), inner.end(), '`', '\'');
  std::replace(inner.begin(), inner.end(), '\n', ' ');
  return "`" + inner + "`";
}

std::string block(std::string_view text) {
  std::string out = "\n      ";
  for (const char c : text) {
    out += c;
    if (c == '\n') out += "      ";
  }
  while (out.back() == ' ' || out.back() == '\n') out.pop_back();
  return out + "\n";
}

std::string cell(const Column& column, std::size_t law) {
  if (column.cells.empty()) return "not judged";
  const Cell& c = column.cells[law];
  const Mark mark = c.mark();
  if (c.judged() == 0) return std::string(to_string(mark));
  if (mark == Mark::kept) return "kept " + number(c.judged());
  std::string text;
  for (const Mark seen : {Mark::fresh, Mark::known, Mark::not_promised}) {
    if (c.of(seen) == 0) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", to_string(seen), number(c.of(seen)));
  }
  text += " of " + number(c.judged());
  return mark == Mark::fresh ? "**" + text + "**" : text;
}

std::string law_table(const Page& page) {
  std::string head = "| law |";
  std::string line = "|---|";
  for (const Column& c : page.columns) {
    const std::string versions = short_versions(c.versions);
    head +=
        fmt::format(" {}{} |", plain(c.subject), versions.empty() ? "" : ": " + plain(versions));
    line += "---|";
  }
  std::string out = head + "\n" + line + "\n";
  for (std::size_t law = 0; law < laws().size(); ++law) {
    if (!is_shown(page, law)) continue;
    out += fmt::format("| {} |", laws()[law].name);
    for (const Column& c : page.columns) out += " " + cell(c, law) + " |";
    out += "\n";
  }
  return out + "\n";
}

std::string divergence(const Divergence& d) {
  std::string out =
      fmt::format("- **{}** ({}, {}).", plain(d.id), to_string(d.mark), counted(d.cases, "case"));
  if (!d.why.empty()) out += " " + plain(d.why);
  if (!d.link.empty()) out += " " + plain(d.link);
  out += "\n";
  const auto line = [&](const char* name, const std::string& text) {
    if (!text.empty()) out += fmt::format("  - {}: {}\n", name, text);
  };
  line("law", plain(d.violation.law));
  line("at", plain(d.violation.place));
  line("expected", plain(d.violation.expected));
  line("got", plain(d.violation.got));
  line("case", d.file.empty() ? "" : fmt::format("[{0}]({0})", d.file));
  line("script", d.script.empty() ? "" : fmt::format("[{0}]({0})", d.script));
  line("again", d.replay.empty() ? "" : code(d.replay));
  return out + block(describe(d.smallest)) + "\n";
}

}  // namespace

std::string page_markdown(const Page& page) {
  std::string out = fmt::format("# {}\n\n{}\n\n", plain(headline(page)), plain(subtitle(page)));
  if (page.changes) {
    out += "## Since the earlier page\n\n";
    if (page.changes->empty()) out += "Nothing changed.\n";
    for (const Change& c : *page.changes) {
      out += fmt::format("- {}: **{}**: {}\n", to_string(c.kind), plain(c.subject), plain(c.text));
    }
    out += "\n";
  }
  out += law_table(page);
  for (std::size_t i = kMarks; i-- > 0;) {
    const auto mark = static_cast<Mark>(i);
    out += fmt::format("- {}: {}\n", to_string(mark), meaning_of(mark));
  }
  out += "\n";
  for (const Column& c : page.columns) {
    out += fmt::format("## {}\n\n", plain(c.subject));
    if (!c.problem.empty()) out += plain(c.problem) + "\n\n";
    if (!c.cells.empty()) out += plain(hunt_text(c)) + "\n\n";
    for (const std::string& s : c.shortfalls) out += plain(s) + "\n\n";
    for (const Divergence& d : c.divergences) out += divergence(d);
    if (!c.unseen.empty()) out += plain(unseen_text(c)) + "\n\n";
  }
  out.pop_back();
  return out;
}

}  // namespace rematch::conform
