#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>

#include "properties/conform/causes.h"
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
  std::replace(inner.begin(), inner.end(), '|', '/');
  std::replace(inner.begin(), inner.end(), '\n', ' ');
  return "`" + inner + "`";
}

/// What trackers know of a bug, or who says so of a limit, since when, and the script that shows
/// it. A text from elsewhere may hold no address.
std::string report(const Divergence& d) {
  const std::size_t begin = std::min(d.reported.find("https://"), d.reported.size());
  const std::string address = d.reported.substr(begin);
  std::string words = d.reported.substr(0, begin);
  while (words.ends_with(' ')) words.pop_back();
  const bool is_web = !address.empty() && address.find_first_of(" ()<>\n|") == std::string::npos;
  const bool is_bug = d.mark == Mark::known;
  std::string text = is_bug ? "not reported" : "";
  if (is_web) {
    text = fmt::format("[{}]({})",
                       !words.empty() ? plain(words)
                       : is_bug       ? "reported"
                                      : "see",
                       address);
  } else if (address.empty() && !words.empty()) {
    text = plain(words);
  }
  if (!d.since.empty()) text += (text.empty() ? "since " : ", since ") + plain(d.since);
  if (d.shown_by.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_/") == std::string::npos &&
      !d.shown_by.empty()) {
    text += fmt::format("{}script `bugs/{}.py`", text.empty() ? "" : ", ", d.shown_by);
  }
  return text.empty() ? "" : fmt::format(" ({})", text);
}

std::string reason(const Divergence& d) {
  if (!d.why.empty()) return plain(d.why);
  return fmt::format("not explained yet: {}: {}", d.violation.law, plain(d.violation.place));
}

/// Of the row of a table that has the entry; empty where it can be none.
std::string anchor_of(const std::string& framework, const std::string& id) {
  std::string anchor = framework + "-" + id;
  constexpr std::string_view kMay = "abcdefghijklmnopqrstuvwxyz0123456789-_";
  return anchor.find_first_not_of(kMay) == std::string::npos ? anchor : "";
}

std::string link_to(const std::string& framework, const std::string& id) {
  const std::string anchor = anchor_of(framework, id);
  return anchor.empty() ? plain(id) : fmt::format("[{}](#{})", id, anchor);
}

std::string script_of(const Cause& cause) {
  for (const Sighting& s : cause.seen) {
    if (!s.divergence->script.empty()) return fmt::format(" ([script]({}))", s.divergence->script);
  }
  return "";
}

bool is_bug(const Cause& cause) { return cause.first().mark >= Mark::known; }

/// The causes that `has` takes, and in how many cases they move a gradient, or do anything.
template <class Has>
std::string table_of_causes(const std::vector<Cause>& causes, bool gradients, Has has) {
  std::string rows;
  for (const Cause& cause : causes) {
    if (!has(cause)) continue;
    const std::string& id = cause.first().id;
    const std::string anchor = is_bug(cause) ? anchor_of(cause.framework, id) : "";
    rows += fmt::format("| {} | {}{}**{}**: {}{}{} | {} |\n", plain(cause.framework),
                        anchor.empty() ? "" : fmt::format("<a id=\"{}\"></a>", anchor),
                        cause.first().mark == Mark::fresh ? "NEW " : "", plain(id),
                        reason(cause.first()), report(cause.first()), script_of(cause),
                        cause.where(gradients, code));
  }
  if (rows.empty()) return "None was seen.\n";
  return fmt::format("| framework | when | cases{} |\n|---|---|---|\n{}",
                     gradients ? " with a wrong gradient" : "", rows);
}

/// Some of these, and how many more there are.
std::string some_of(const std::vector<std::string>& parts) {
  constexpr std::size_t kMost = 4;
  if (parts.size() <= kMost) return list_text(parts);
  return fmt::format("{} and {} more", list_text({parts.begin(), parts.begin() + kMost}),
                     parts.size() - kMost);
}

/// Whether the gradients of an implementation are right, or by which causes they are silently
/// wrong, the most frequent one first.
std::string answer_of(const Column& column, const std::vector<Cause>& causes) {
  std::vector<std::pair<std::uint64_t, std::string>> wrong;
  std::vector<std::string> others;
  for (const Cause& cause : causes) {
    if (cause.first().mark < Mark::known || cause.first().plain_too || !cause.is_silent()) continue;
    for (const Sighting& s : cause.seen) {
      if (s.column != &column) continue;
      const std::string link = link_to(cause.framework, s.divergence->id);
      if (const std::uint64_t cases = s.divergence->wrong_gradients(); cases > 0) {
        wrong.emplace_back(cases, link);
      } else if (s.divergence->is_silent() && !cause.reaches_a_gradient()) {
        others.push_back(link);
      }
    }
  }
  std::stable_sort(wrong.begin(), wrong.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::string text;
  if (column.cells.empty()) {
    text = "not judged";
  } else if (!wrong.empty()) {
    std::vector<std::string> links;
    for (const auto& [cases, link] : wrong) links.push_back(link);
    links.front() +=
        fmt::format(" ({} of {})", number(wrong.front().first), counted(column.cases, "case"));
    text = "**silently wrong**: " + some_of(links);
  } else {
    constexpr std::string_view kToo =
        "[wrong without a checkpoint, too]"
        "(#wrong-without-a-checkpoint-too)";
    switch (column.gradients().mark) {
      case Mark::kept:
        text = "right";
        break;
      case Mark::too_few:
        text = fmt::format("none wrong, but fewer than {} structures", kFewStructures);
        break;
      case Mark::not_promised:
        text = "right, but for limits that are documented";
        break;
      case Mark::known:
      case Mark::fresh:
        text = kToo;
        break;
      default:
        text = "not judged";
        break;
    }
  }
  return others.empty() ? text
                        : text + "; silently wrong, but not in a gradient here: " + some_of(others);
}

/// What a user writes, and whether that gives right gradients.
std::string answers(const Page& page, const std::vector<Cause>& causes, const Frameworks& known) {
  std::string out = "| what you write | name | gradients | judged in |\n|---|---|---|---|\n";
  const auto runs_of = [&](const Column* c) {
    const auto found = known.subjects.find(c->subject);
    return found == known.subjects.end() ? "" : found->second.runs;
  };
  std::vector<const Column*> columns = in_order(page);
  for (auto begin = columns.begin(); begin != columns.end();) {
    const auto end = std::find_if(begin, columns.end(), [&](const Column* c) {
      return c->framework() != (*begin)->framework();
    });
    // What is alike stands together: all that is compiled, say.
    std::stable_sort(begin, end,
                     [&](const Column* a, const Column* b) { return runs_of(a) < runs_of(b); });
    for (; begin != end; ++begin) {
      const Column& c = **begin;
      out += fmt::format("| {} | {} | {} | {} |\n", runs_of(&c), code(c.subject),
                         answer_of(c, causes), counted(c.gradients().structures, "structure"));
    }
  }
  return out;
}

/// How many laws of a topic the implementation does not show, though another on the page does.
std::size_t unseen_of(const Page& page, const Column& column, Topic topic) {
  std::size_t unseen = 0;
  for (std::size_t i = 0; i < laws().size(); ++i) {
    const bool judged = std::any_of(page.columns.begin(), page.columns.end(), [&](const Column& c) {
      return !c.cells.empty() && c.cells[i].mark() > Mark::not_observed;
    });
    unseen +=
        laws()[i].topic == topic && judged && column.cells[i].mark() == Mark::not_observed ? 1 : 0;
  }
  return unseen;
}

std::string topic_table(const Page& page) {
  std::string head = "| implementation | structures |";
  std::string line = "|---|---|";
  for (std::size_t p = 0; p < kTopicCount; ++p) {
    head += fmt::format(" {} |", to_string(static_cast<Topic>(p)));
    line += "---|";
  }
  std::string out = head + "\n" + line + "\n";
  for (const Column* c : in_order(page)) {
    if (c->cells.empty()) continue;
    out += fmt::format("| {} | {} |", plain(c->subject), number(c->structures));
    for (std::size_t p = 0; p < kTopicCount; ++p) {
      const auto topic = static_cast<Topic>(p);
      const TopicCell cell = c->cell_of(topic);
      const std::size_t unseen = unseen_of(page, *c, topic);
      std::string text = cell_text(cell);
      if (unseen > 0 && (cell.mark == Mark::kept || cell.mark == Mark::too_few)) {
        text += fmt::format(", {} not observed", counted(unseen, "law"));
      }
      out += cell.mark == Mark::fresh ? fmt::format(" **{}** |", text) : fmt::format(" {} |", text);
    }
    out += "\n";
  }
  return out + "\n";
}

std::string not_judged(const Page& page) {
  std::string out;
  for (const Column* c : in_order(page)) {
    if (!c->problem.empty()) out += fmt::format("- {}: {}\n", plain(c->subject), plain(c->problem));
    for (const std::string& s : c->shortfalls) {
      out += fmt::format("- {}: {}\n", plain(c->subject), plain(s));
    }
  }
  return out.empty() ? "" : "\n## Not judged as intended\n\n" + out;
}

std::string entry(const Cause& cause) {
  const Divergence& d = cause.first();
  return fmt::format("- **{}** ({}, {}): {}{}{} Violates {}. In {}.\n", plain(d.id),
                     to_string(d.mark), to_string(cause.harm()), reason(d), report(d),
                     script_of(cause), plain(list_text(cause.laws())), cause.where(false, code));
}

/// Those that no table has.
std::string entries(const Page& page, const std::vector<Cause>& causes) {
  std::string out;
  std::string framework;
  for (const Cause& cause : causes) {
    if (cause.reaches_a_gradient() || (is_bug(cause) && cause.is_silent())) continue;
    if (cause.framework != framework) {
      framework = cause.framework;
      Versions versions;
      for (const Column& c : page.columns) {
        if (c.framework() == framework) versions.insert(c.versions.begin(), c.versions.end());
      }
      out += fmt::format("{}### {}: {}\n\n", out.empty() ? "" : "\n", plain(framework),
                         plain(short_versions(versions)));
    }
    out += entry(cause);
  }
  return out.empty() ? "None was seen.\n" : out;
}

/// One line for each reason and the implementations that it is about.
std::string unobserved(const Page& page, const Frameworks& known) {
  std::vector<std::string> nowhere;
  std::map<std::pair<std::string, std::string>, std::map<std::string, std::vector<std::string>>>
      by_law;
  std::map<std::string, std::size_t> columns;
  for (const Column& c : page.columns) columns[c.framework()] += c.cells.empty() ? 0 : 1;
  for (std::size_t i = 0; i < laws().size(); ++i) {
    const auto mark = [&](const Column& c) {
      return c.cells.empty() ? Mark::not_applicable : c.cells[i].mark();
    };
    const bool judged = std::any_of(page.columns.begin(), page.columns.end(),
                                    [&](const Column& c) { return mark(c) > Mark::not_observed; });
    const std::string name(laws()[i].name);
    if (!judged) nowhere.push_back(code(name));
    for (const Column* c : in_order(page)) {
      if (!judged || mark(*c) != Mark::not_observed) continue;
      const std::string why = known.why_unobserved(c->subject, name);
      by_law[{c->framework(), why.empty() ? "no reason is given" : why}][name].push_back(
          c->subject);
    }
  }
  std::string out;
  for (const auto& [why, subjects_of] : by_law) {
    std::map<std::vector<std::string>, std::vector<std::string>> laws_of;
    for (const auto& [law, subjects] : subjects_of) laws_of[subjects].push_back(code(law));
    std::string groups;
    for (const auto& [subjects, names] : laws_of) {
      const bool is_all = subjects.size() == columns[why.first];
      groups += (groups.empty() ? "" : "; ") + list_text(names) +
                (is_all ? "" : " in " + plain(list_text(subjects)));
    }
    out += fmt::format("- {}: {} ({})\n", plain(why.first), why.second, groups);
  }
  if (nowhere.empty()) return out;
  return out + fmt::format("- all: only the reference engine records what these laws need ({})\n",
                           list_text(nowhere));
}

}  // namespace

std::string page_markdown(const Page& page, const Frameworks& known) {
  const std::vector<Cause> causes = causes_of(page);
  std::string out = fmt::format("# {}\n\n{}\n\n", plain(headline(page)), plain(subtitle(page)));
  out +=
      "Counts say how often random cases meet a cause. What your model does decides whether it "
      "meets it: follow the link.\n\n" +
      answers(page, causes, known);
  const auto table = [&](std::string_view head, std::string_view text, bool gradients, auto has) {
    out += fmt::format("\n## {}\n\n{}\n\n{}", head, text, table_of_causes(causes, gradients, has));
  };
  const auto plain_too = [](const Cause& c) { return c.first().plain_too; };
  table("Silently wrong gradients",
        "A gradient differs from the one without a checkpoint, or is missing, and nothing says so. "
        "A row is one cause. \"Near\" links a related thread; \"since\" names the first release "
        "tried "
        "that shows it; \"undecided before\": the script does not run in earlier ones.",
        true, [&](const Cause& c) { return is_bug(c) && c.reaches_a_gradient() && !plain_too(c); });
  table(
      "Silently wrong otherwise",
      "No case showed a wrong gradient here: outputs, masks, states or random states differ, or a "
      "script shows that the framework does not do what it states.",
      false, [&](const Cause& c) {
        return is_bug(c) && c.is_silent() && !c.reaches_a_gradient() && !plain_too(c);
      });
  table("Wrong without a checkpoint, too", "The plain run of the framework has the same bug.",
        false, [&](const Cause& c) { return is_bug(c) && plain_too(c); });
  out += "\n## Which laws each implementation keeps\n\n" + topic_table(page);
  for (std::size_t i = kMarks; i-- > 0;) {
    const auto mark = static_cast<Mark>(i);
    out += fmt::format("- {}: {}\n", to_string(mark), meaning_of(mark));
  }
  out +=
      "\nA topic is as strong as its weakest law: a number after \"kept\" or \"too few\" is that "
      "of the law "
      "with the fewest\nstructures; `conform.json` has every law by itself.\n";
  out += not_judged(page);
  table("Gradients within stated limits",
        "Gradients differ, but the implementation says so, or it follows from what it says (sums "
        "in another order, say).",
        true, [](const Cause& c) {
          return c.first().mark == Mark::not_promised && c.reaches_a_gradient();
        });
  out +=
      "\n## Other differences\n\n"
      "Silent: numbers, masks or states are wrong, or a gradient is missing, and no error says so. "
      "Cost: recomputations\nor bytes alone.\n\n";
  out += entries(page, causes);
  out += "\n## Not observed, and why\n\n" + unobserved(page, known);
  std::string unseen;
  for (const Unseen& u : unseen_in(page)) {
    unseen += fmt::format("- {}, in {}: {}\n", plain(u.framework),
                          counted(u.structures, "structure"), plain(list_text(u.ids)));
  }
  if (!unseen.empty()) out += "\n## On our list, but not seen\n\n" + unseen;
  const std::string judges = provenance(page);
  return judges.empty() ? out : out + "\n## What judged\n\n" + plain(judges) + "\n";
}

}  // namespace rematch::conform
