#include <fmt/format.h>

#include <algorithm>

#include "properties/case/describe.h"
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

/// Details behind the mark of a law: the divergences, each with a link to what is known of it.
std::string behind(const Column& column, std::size_t at, std::string_view law) {
  std::string items;
  for (std::size_t i = 0; i < column.divergences.size(); ++i) {
    const Divergence& d = column.divergences[i];
    const auto found = d.laws.find(law);
    if (found == d.laws.end()) continue;
    items += fmt::format("<li><a href=\"#{}\">{}</a> {}</li>", anchor(at, i), xml_escaped(d.id),
                         number(found->second));
  }
  return items.empty() ? "<li>in cases that also violate another law</li>" : items;
}

std::string cell(const Column& column, std::size_t at, std::size_t law) {
  if (column.cells.empty()) return "<td class=\"none\"><span class=\"mark\">not judged</span></td>";
  const Cell& c = column.cells[law];
  const Mark mark = c.mark();
  const std::string style = style_of(mark);
  if (c.judged() == 0) {
    return fmt::format("<td class=\"{}\"><span class=\"mark\">{}</span></td>", style,
                       to_string(mark));
  }
  if (mark == Mark::kept) {
    return fmt::format(
        "<td class=\"{}\"><span class=\"mark\">kept</span><span class=\"of\">{}</span></td>", style,
        number(c.judged()));
  }
  return fmt::format(
      "<td class=\"{}\"><details><summary><span class=\"mark\">{} {}</span><span class=\"of\">of "
      "{}</span></summary><ul>{}</ul></details></td>",
      style, to_string(mark), number(c.of(mark)), number(c.judged()),
      behind(column, at, laws()[law].name));
}

std::string table(const Page& page) {
  std::string out =
      "<div class=\"scroll\" tabindex=\"0\"><table class=\"laws\">\n<thead><tr>"
      "<th scope=\"col\">law</th>";
  for (std::size_t i = 0; i < page.columns.size(); ++i) {
    const Column& c = page.columns[i];
    out += fmt::format(
        "\n<th scope=\"col\"><a href=\"#s{}\">{}</a><span class=\"dim\">{}</span>"
        "<span class=\"dim\">{}</span></th>",
        i + 1, xml_escaped(c.subject), xml_escaped(short_versions(c.versions)),
        c.cells.empty() ? "not judged" : counted(c.cases, "case"));
  }
  out += "</tr></thead>\n<tbody>\n";
  for (std::size_t law = 0; law < laws().size(); ++law) {
    if (!is_shown(page, law)) continue;
    out += fmt::format("<tr><th scope=\"row\"><a href=\"#law-{0}\">{0}</a></th>", laws()[law].name);
    for (std::size_t i = 0; i < page.columns.size(); ++i)
      out += "\n" + cell(page.columns[i], i, law);
    out += "</tr>\n";
  }
  return out + "</tbody></table></div>\n";
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
  out += pairs({{"reported", d.link.empty() ? "" : linked(d.link)}, {"violates", counts}});
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
    out += fmt::format("<p class=\"dim\">{}</p>\n", xml_escaped(unseen_text(c)));
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
  out += header(page) + changes(page) + table(page);
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
