#include "properties/conform/words.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <tuple>

#include "properties/output/terminal.h"

namespace rematch::conform {

using cli::counted;

std::string number(std::uint64_t cases) { return cli::grouped(static_cast<std::int64_t>(cases)); }

Summary summary_of(const Page& page) {
  Summary s;
  for (const Column& c : page.columns) {
    for (const Divergence& d : c.divergences) {
      (d.mark == Mark::fresh ? s.fresh : d.mark == Mark::known ? s.known : s.not_promised) += 1;
    }
    if (!c.problem.empty() || !c.shortfalls.empty()) ++s.problems;
  }
  return s;
}

std::string headline(const Page& page) {
  const Summary s = summary_of(page);
  return fmt::format("Activation checkpointing: {}, {}",
                     counted(page.columns.size(), "implementation"),
                     s.fresh == 0 ? "nothing new" : counted(s.fresh, "new divergence"));
}

std::string provenance(const Page& page) {
  std::map<std::string_view, std::vector<std::string_view>> by_state;
  for (const Column& c : page.columns) {
    if (!c.cells.empty()) by_state[c.state].push_back(c.subject);
  }
  const auto most = std::max_element(
      by_state.begin(), by_state.end(),
      [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  const auto name = [](std::string_view state) {
    return state.empty() ? "an earlier state" : fmt::format("Rematch {}", state);
  };
  if (by_state.empty() || (by_state.size() == 1 && most->first.empty())) return "";
  std::string text = fmt::format("Judged by {}", name(most->first));
  for (const auto& [state, subjects] : by_state) {
    if (state == most->first) continue;
    text += fmt::format("; those of {} by {}", fmt::join(subjects, ", "), name(state));
  }
  return text + ".";
}

std::string subtitle(const Page& page) {
  const Summary s = summary_of(page);
  std::uint64_t cases = 0;
  std::uint64_t structures = 0;
  for (const Column& c : page.columns) {
    cases += c.cases;
    structures += c.structures;
  }
  std::string text = fmt::format(
      "{} of the {} mix, {} (distinct models, plans and modes of each implementation), seed {}. "
      "Summed over implementations, they showed {} and {}.",
      counted(cases, "random case"), page.mix, counted(structures, "structure"), page.seed,
      counted(s.known, "known bug"), counted(s.not_promised, "documented limit"));
  double seconds = 0;
  for (const Column& c : page.columns) seconds += c.seconds;
  text += fmt::format(" The hunts took {:.1f} hours.", seconds / 3600);
  if (s.problems > 0) {
    text +=
        fmt::format(" {} could not be judged as intended.", counted(s.problems, "implementation"));
  }
  return text;
}

std::string meaning_of(Mark mark) {
  switch (mark) {
    case Mark::fresh:
      return "differs in a way that is not on our list";
    case Mark::known:
      return "a bug on our list (see the entry for whether it was reported)";
    case Mark::not_promised:
      return "differs, but the framework's documentation says that it may";
    case Mark::kept:
      return fmt::format(
          "no difference in any case; of its laws, that with the fewest structures has so many, {} "
          "or more",
          kFewStructures);
    case Mark::too_few:
      return fmt::format("no difference in any case, but one law judged fewer than {} structures",
                         kFewStructures);
    case Mark::not_observed:
      return "the implementation does not show what the law reads";
    case Mark::not_applicable:
      return "no case had anything for this law to judge";
  }
  return {};
}

std::string cell_text(const TopicCell& cell) {
  const std::string mark(to_string(cell.mark));
  if (cell.mark > Mark::kept) {
    return fmt::format("{} {} of {}", mark, number(cell.violating), number(cell.judged));
  }
  if (cell.mark < Mark::too_few) return mark;
  const std::string text = mark + " " + number(cell.structures);
  return cell.mark == Mark::too_few ? fmt::format("{} ({})", text, cell.law) : text;
}

std::vector<const Column*> in_order(const Page& page) {
  // Those that most people use; others follow by name.
  constexpr std::string_view kFirst[] = {"pytorch", "transformers", "jax",      "tensorflow",
                                         "keras",   "deepspeed",    "nnx",      "equinox",
                                         "mlx",     "paddle",       "mindspore"};
  const auto rank = [&](const Column* c) {
    const auto* const found = std::find(std::begin(kFirst), std::end(kFirst), c->framework());
    return std::tuple(found - std::begin(kFirst), c->framework());
  };
  std::vector<const Column*> columns;
  for (const Column& c : page.columns) columns.push_back(&c);
  std::stable_sort(columns.begin(), columns.end(),
                   [&](const Column* a, const Column* b) { return rank(a) < rank(b); });
  return columns;
}

std::string list_text(const std::vector<std::string>& names) {
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace rematch::conform
