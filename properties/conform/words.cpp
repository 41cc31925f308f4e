#include "properties/conform/words.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
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
      "They "
      "showed {} and {}.",
      counted(cases, "random case"), page.mix, counted(structures, "structure"), page.seed,
      counted(s.known, "known bug"), counted(s.not_promised, "documented limit"));
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
          "the same in all cases that were judged, of so many structures, at least {}",
          kFewStructures);
    case Mark::too_few:
      return fmt::format("the same in all cases, but of fewer than {} structures", kFewStructures);
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
  return cell.mark < Mark::too_few ? mark : mark + " " + number(cell.structures);
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

std::string hunt_text(const Column& c) {
  std::string versions;
  for (const auto& [name, version] : c.versions) {
    versions += fmt::format(", {} {}", name, version);
  }
  std::string text = fmt::format("{} of {} in {} ({} cases/s){}{}.", counted(c.cases, "case"),
                                 counted(c.structures, "structure"), cli::seconds_text(c.seconds),
                                 cli::rate_text(c.cases_per_second()),
                                 c.interrupted ? ", interrupted" : "", versions);
  if (c.not_judged > 0) {
    text += fmt::format(" {} could not be run, most often because: {}",
                        counted(c.not_judged, "case"), c.why_not_judged);
  }
  return text;
}

std::string list_text(const std::vector<std::string>& names) {
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace rematch::conform
