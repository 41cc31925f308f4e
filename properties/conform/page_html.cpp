#include <fmt/format.h>

#include <algorithm>

#include "properties/case/describe.h"
#include "properties/conform/causes.h"
#include "properties/conform/page.h"
#include "properties/conform/page_html_style.h"
#include "properties/conform/words.h"
#include "properties/output/svg_parts.h"
#include "properties/output/terminal.h"

namespace rematch::conform {
namespace {

using cli::counted;
using cli::grouped;
using cli::xml_escaped;

/// The class of the style sheet.
std::string style_of(Mark mark) {
  if (mark == Mark::not_applicable) return "not-applicable";
  std::string name(to_string(mark));
  std::replace(name.begin(), name.end(), ' ', '-');
  return name;
}

/// A link, unless the text that a subject or a profile calls one is none.
std::string linked(const std::string& link) {
  const std::string text = xml_escaped(link);
  const bool is_web = link.starts_with("https://") || link.starts_with("http://");
  return is_web ? fmt::format("<a href=\"{0}\">{0}</a>", text) : text;
}

/// A file beside the page, by a name that the program made.
std::string file_link(const std::string& file) {
  return fmt::format("<a href=\"{0}\"><code>{0}</code></a>", xml_escaped(file));
}

std::string anchor(std::size_t column, std::size_t divergence) {
  return fmt::format("s{}-d{}", column + 1, divergence + 1);
}

std::string header(const Page& page) {
  const Summary s = summary_of(page);
  const char* style = s.fresh > 0 || s.broken > 0 ? " bad" : s.problems > 0 ? " unsure" : "";
  return fmt::format(
      "<header class=\"verdict{}\"><h1>{}</h1>\n<p>{}</p></header>\n"
      "<ul class=\"legend\">\n{}</ul>\n",
      style, xml_escaped(headline(page)), xml_escaped(subtitle(page)), [] {
        std::string items;
        for (std::size_t i = kMarks; i-- > 0;) {
          const auto mark = static_cast<Mark>(i);
          items +=
              fmt::format("<li><span class=\"{}\"><span class=\"mark\">{}</span></span> {}</li>\n",
                          style_of(mark), to_string(mark), xml_escaped(meaning_of(mark)));
        }
        return items;
      }());
}

std::string changes(const Page& page) {
  if (!page.changes) return "";
  std::string out = "<h2>Since the earlier page</h2>\n";
  if (page.changes->empty()) return out + "<p>Nothing changed.</p>\n";
  out += "<ul>\n";
  for (const Change& c : *page.changes) {
    const char* style = c.kind == Change::Kind::broken   ? "new"
                        : c.kind == Change::Kind::mended ? "kept"
                                                         : "none";
    out += fmt::format(
        "<li><span class=\"{}\"><span class=\"mark\">{}</span></span> <b>{}</b>: {}</li>\n", style,
        to_string(c.kind), xml_escaped(c.subject), xml_escaped(c.text));
  }
  return out + "</ul>\n";
}

/// Details behind the mark of a promise: its laws, and the divergences, each with a link to what is
/// known of it.
std::string behind(const Column& column, std::size_t at, Promise promise) {
  std::string items;
  for (std::size_t law = 0; law < column.cells.size(); ++law) {
    if (laws()[law].promise != promise) continue;
    const Cell& c = column.cells[law];
    if (c.mark() == Mark::not_applicable) continue;
    const Mark mark = c.mark();
    items += fmt::format(
        "<li><span class=\"{}\"><span class=\"mark\">{}</span></span> "
        "<a href=\"#law-{}\">{}</a>",
        style_of(mark), to_string(mark), laws()[law].name, laws()[law].name);
    if (c.judged() > 0) items += " of " + counted(c.structures, "structure");
    for (std::size_t i = 0; i < column.divergences.size(); ++i) {
      const auto found = column.divergences[i].laws.find(laws()[law].name);
      if (found == column.divergences[i].laws.end()) continue;
      items += fmt::format("<div><a href=\"#{}\">{}</a> {}</div>", anchor(at, i),
                           xml_escaped(column.divergences[i].id), counted(found->second, "case"));
    }
    items += "</li>";
  }
  return items;
}

std::string cell(const Column& column, std::size_t at, Promise promise) {
  const PromiseCell c = column.cell_of(promise);
  const std::string style = style_of(c.mark);
  const std::string items = behind(column, at, promise);
  const std::string text = fmt::format("<span class=\"mark\">{}</span>", cell_text(c));
  if (items.empty()) return fmt::format("<td class=\"{}\">{}</td>", style, text);
  return fmt::format("<td class=\"{}\"><details><summary>{}</summary><ul>{}</ul></details></td>",
                     style, text, items);
}

std::string table(const Page& page) {
  std::string out =
      "<h2>Which implementation keeps which promise</h2>\n"
      "<div class=\"scroll\" tabindex=\"0\"><table class=\"laws\">\n<thead><tr>"
      "<th scope=\"col\">implementation</th>";
  for (std::size_t p = 0; p < kPromiseCount; ++p) {
    out += fmt::format("<th scope=\"col\">{}</th>", to_string(static_cast<Promise>(p)));
  }
  out += "</tr></thead>\n<tbody>\n";
  for (const Column* c : in_order(page)) {
    const auto at = static_cast<std::size_t>(c - page.columns.data());
    out += fmt::format(
        "<tr><th scope=\"row\"><a href=\"#s{}\">{}</a><span class=\"dim\">{}</span></th>", at + 1,
        xml_escaped(c->subject),
        c->cells.empty() ? "not judged" : counted(c->structures, "structure"));
    for (std::size_t p = 0; p < kPromiseCount && !c->cells.empty(); ++p) {
      out += "\n" + cell(*c, at, static_cast<Promise>(p));
    }
    if (c->cells.empty())
      out += fmt::format("<td colspan=\"{}\">{}</td>", kPromiseCount, "not judged");
    out += "</tr>\n";
  }
  return out + "</tbody></table></div>\n";
}

/// The first question of most readers.
std::string silent(const Page& page) {
  std::string rows;
  for (const Cause& cause : causes_of(page)) {
    const Divergence& d = cause.first();
    if (!cause.reaches_a_gradient() || d.mark < Mark::known) continue;
    const Sighting& seen = cause.seen.front();
    const auto column = static_cast<std::size_t>(seen.column - page.columns.data());
    const auto at = static_cast<std::size_t>(&d - seen.column->divergences.data());
    rows += fmt::format(
        "<tr><th scope=\"row\">{}</th><td class=\"{}\"><a href=\"#{}\">{}</a></td><td>{}</td>"
        "<td>{}</td></tr>\n",
        xml_escaped(cause.framework), style_of(d.mark), anchor(column, at), xml_escaped(d.id),
        xml_escaped(d.why.empty() ? d.violation.place : d.why), cause.where(true, xml_escaped));
  }
  const std::string title = "<h2>Silently wrong gradients</h2>\n";
  if (rows.empty()) return title + "<p>None was seen.</p>\n";
  return title +
         "<p>No error and no warning, and yet a gradient differs from the one without a "
         "checkpoint, or "
         "is missing.</p>\n<div class=\"scroll\" tabindex=\"0\"><table class=\"causes\">\n<thead>"
         "<tr><th scope=\"col\">framework</th><th scope=\"col\">entry</th><th "
         "scope=\"col\">when</th>"
         "<th scope=\"col\">cases</th></tr></thead>\n<tbody>\n" +
         rows + "</tbody></table></div>\n";
}

std::string pairs(const std::vector<std::pair<std::string, std::string>>& list) {
  std::string out = "<dl>";
  for (const auto& [name, html] : list) {
    if (!html.empty()) out += fmt::format("<dt>{}</dt><dd>{}</dd>\n", name, html);
  }
  return out + "</dl>\n";
}

std::string divergence(const Divergence& d, const std::string& id) {
  std::string counts;
  for (const auto& [law, cases] : d.laws) {
    counts += fmt::format("{}{} {}", counts.empty() ? "" : ", ", xml_escaped(law), number(cases));
  }
  std::string out = fmt::format(
      "<details class=\"divergence\"><summary><span class=\"{}\"><span class=\"mark\">{}</span>"
      "</span> <b>{}</b> <span class=\"dim\">{}</span></summary><div id=\"{}\">\n",
      style_of(d.mark), to_string(d.mark), xml_escaped(d.id), counted(d.cases, "case"), id);
  if (!d.why.empty()) out += fmt::format("<p>{}</p>\n", xml_escaped(d.why));
  out += pairs({{"shows as", std::string(to_string(d.harm()))},
                {d.mark == Mark::known ? "reported" : "see",
                 d.reported.empty() && d.mark == Mark::known ? "no" : linked(d.reported)},
                {"since", xml_escaped(d.since)},
                {"violates", counts}});
  out += fmt::format("<pre class=\"wrapped\">{}</pre>\n", xml_escaped(describe(d.smallest)));
  out += pairs({{"law", xml_escaped(d.violation.law)},
                {"at", xml_escaped(d.violation.place)},
                {"expected", xml_escaped(d.violation.expected)},
                {"got", xml_escaped(d.violation.got)},
                {"case", d.file.empty() ? "" : file_link(d.file)},
                {"script", d.script.empty() ? "" : file_link(d.script)}});
  for (const std::string& line : {d.replay, d.unshrunk}) {
    if (!line.empty()) out += fmt::format("<pre>{}</pre>\n", xml_escaped(line));
  }
  return out + "</div></details>\n";
}

std::string section(const Column& c, std::size_t at) {
  std::string out =
      fmt::format("<section id=\"s{}\"><h3>{}</h3>\n", at + 1, xml_escaped(c.subject));
  if (!c.problem.empty())
    out += fmt::format("<pre class=\"wrapped\">{}</pre>\n", xml_escaped(c.problem));
  if (!c.cells.empty()) {
    out += fmt::format("<p class=\"dim\">{}</p>\n", xml_escaped(hunt_text(c)));
  }
  for (const std::string& s : c.shortfalls) out += fmt::format("<p>{}</p>\n", xml_escaped(s));
  for (std::size_t i = 0; i < c.divergences.size(); ++i) {
    out += divergence(c.divergences[i], anchor(at, i));
  }
  if (!c.unseen.empty()) {
    out += fmt::format(
        "<p class=\"dim\">{}</p>\n",
        xml_escaped("Known, but not seen in these cases: " + list_text(c.unseen) + "."));
  }
  return out + "</section>\n";
}

}  // namespace

std::string page_html(const Page& page) {
  std::string out =
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n";
  out += fmt::format("<title>{}</title>\n<style>{}</style>\n</head>\n<body>\n",
                     xml_escaped(headline(page)), kPageStyle);
  out += header(page) + changes(page) + silent(page) + table(page);
  out += "<h2>The divergences, by implementation</h2>\n";
  for (std::size_t i = 0; i < page.columns.size(); ++i) out += section(page.columns[i], i);
  out += "<h2>The laws</h2>\n<dl>";
  for (std::size_t i = 0; i < laws().size(); ++i) {
    if (!is_shown(page, i)) continue;
    out += fmt::format("<dt id=\"law-{0}\">{0}</dt><dd>{1} If violated: {2}</dd>\n", laws()[i].name,
                       xml_escaped(laws()[i].statement), xml_escaped(laws()[i].harm));
  }
  return out + "</dl>\n</body>\n</html>\n";
}

}  // namespace rematch::conform
