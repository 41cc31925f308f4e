#include "properties/conform/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

namespace rematch::conform {
namespace {

constexpr std::array<std::string_view, kMarks> kNames{
    "n/a", "not observed", "too few", "kept", "not promised", "known", "new"};
constexpr std::array<std::string_view, kHarms> kHarmNames{"silent", "an error", "cost",
                                                          "its own statement"};
constexpr std::string_view kGradients[] = {"absent-gradients", "input-gradients",
                                           "parameter-gradients"};

Mark mark_of(const Profile& profile, std::size_t entry) {
  if (entry == kUnexplained) return Mark::fresh;
  return profile.entries()[entry].promised ? Mark::known : Mark::not_promised;
}

std::vector<Cell> cells_of(const HuntOptions& options, const HuntResult& result) {
  std::vector<Cell> cells(laws().size());
  const auto add = [&](std::size_t law, Mark mark, std::uint64_t cases) {
    cells[law].cases[static_cast<std::size_t>(mark)] += cases;
  };
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const auto count = [&](Verdict v) { return result.verdicts[i][static_cast<std::size_t>(v)]; };
    add(i, Mark::kept, count(Verdict::kept));
    add(i, Mark::not_applicable, count(Verdict::not_applicable));
    add(i, Mark::not_observed, count(Verdict::not_observed));
    cells[i].structures = result.structures.judged_by(i);
  }
  for (const auto& [by, cases] : result.violated) {
    add(by.first, mark_of(options.profile, by.second), cases);
  }
  return cells;
}

Divergence divergence_of(const Finding& finding, std::uint64_t cases) {
  Divergence d;
  d.cases = cases;
  d.violation = finding.violation;
  d.smallest = finding.smallest;
  d.index = finding.index;
  return d;
}

}  // namespace

std::string_view to_string(Mark mark) { return kNames[static_cast<std::size_t>(mark)]; }

std::optional<Mark> mark_named(std::string_view name) {
  const auto* const found = std::find(kNames.begin(), kNames.end(), name);
  if (found == kNames.end()) return std::nullopt;
  return static_cast<Mark>(found - kNames.begin());
}

std::uint64_t Cell::judged() const {
  return of(Mark::kept) + of(Mark::not_promised) + of(Mark::known) + of(Mark::fresh);
}

Mark Cell::mark() const {
  std::size_t mark = kMarks - 1;
  while (mark > 0 && cases[mark] == 0) --mark;
  if (static_cast<Mark>(mark) == Mark::kept && structures < kFewStructures) return Mark::too_few;
  return static_cast<Mark>(mark);
}

std::string_view to_string(Harm harm) { return kHarmNames[static_cast<std::size_t>(harm)]; }

Harm Divergence::harm() const {
  Harm worst = Harm::own;
  for (const auto& [name, of_law] : laws) {
    const Law* law = find_law(name);
    if (law == nullptr) continue;
    Harm harm = Harm::silent;
    switch (law->topic) {
      case Topic::errors:
      case Topic::survival:
        harm = Harm::loud;
        break;
      case Topic::recomputation:
      case Topic::memory:
        harm = Harm::cost;
        break;
      case Topic::own:
        harm = Harm::own;
        break;
      default:
        break;
    }
    worst = std::min(worst, harm);
  }
  return worst;
}

std::uint64_t Divergence::wrong_gradients() const {
  std::uint64_t most = 0;
  for (const std::string_view law : kGradients) {
    if (const auto found = laws.find(law); found != laws.end()) {
      most = std::max(most, found->second);
    }
  }
  return most == 0 && moves_gradients ? cases : most;
}

TopicCell Column::weakest_of(const std::function<bool(const Law&)>& has) const {
  // Larger is worse. What was seen in few structures is weaker than what was seen in many.
  const auto badness = [](const TopicCell& c) {
    const bool few = c.mark == Mark::too_few;
    const int rank = few ? static_cast<int>(Mark::kept)
                         : static_cast<int>(c.mark) - (c.mark == Mark::kept ? 1 : 0);
    const double share =
        c.judged > 0 ? static_cast<double>(c.violating) / static_cast<double>(c.judged) : 0;
    return std::tuple(rank, share, ~c.structures);
  };
  TopicCell worst;
  for (std::size_t i = 0; i < cells.size(); ++i) {
    if (!has(laws()[i])) continue;
    const Cell& cell = cells[i];
    const Mark mark = cell.mark();
    if (laws()[i].is_sampled && mark <= Mark::kept) continue;
    const TopicCell one{mark, mark > Mark::kept ? cell.of(mark) : 0, cell.judged(), cell.structures,
                        laws()[i].name};
    if (badness(one) > badness(worst)) worst = one;
  }
  return worst;
}

TopicCell Column::cell_of(Topic topic) const {
  return weakest_of([&](const Law& law) { return law.topic == topic; });
}

TopicCell Column::gradients() const {
  return weakest_of([](const Law& law) {
    return std::find(std::begin(kGradients), std::end(kGradients), law.name) !=
           std::end(kGradients);
  });
}

Column column_of(const std::string& subject, const HuntOptions& options, const HuntResult& result) {
  Column column;
  column.subject = subject;
  column.versions = result.versions;
  column.problem = result.error;
  column.interrupted = result.interrupted;
  column.cases = result.cases;
  column.structures = result.structures.count();
  column.not_judged = result.not_judged;
  const auto most =
      std::max_element(result.why_not_judged.begin(), result.why_not_judged.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most != result.why_not_judged.end()) column.why_not_judged = most->first;
  column.seconds = result.seconds;
  column.shortfalls = result.shortfalls;
  column.cells = cells_of(options, result);
  std::map<std::string_view, int> new_of_law;
  for (const Finding& finding : result.findings) {
    Divergence d = divergence_of(finding, finding.count);
    d.id = fmt::format("{}-{}", d.violation.law, ++new_of_law[d.violation.law]);
    d.laws[std::string(finding.violation.law)] = finding.count;
    column.divergences.push_back(std::move(d));
  }
  const auto first_known = static_cast<std::ptrdiff_t>(column.divergences.size());
  for (const Finding& finding : result.known_findings) {
    const KnownDivergence& entry = options.profile.entries()[*finding.known];
    Divergence d = divergence_of(finding, finding.count);
    d.mark = mark_of(options.profile, *finding.known);
    d.id = entry.id;
    d.why = entry.why;
    d.reported = entry.reported;
    d.shown_by = entry.script;
    d.since = entry.since;
    d.plain_too = entry.plain_too;
    d.moves_gradients = entry.moves_gradients;
    for (const auto& [by, cases] : result.violated) {
      if (by.second == finding.known) d.laws[std::string(laws()[by.first].name)] = cases;
    }
    column.divergences.push_back(std::move(d));
  }
  std::sort(column.divergences.begin() + first_known, column.divergences.end(),
            [](const Divergence& a, const Divergence& b) {
              return std::tuple(b.mark, b.cases, a.id) < std::tuple(a.mark, a.cases, b.id);
            });
  const Profile profile = options.profile.on(result.versions);
  for (std::size_t i = 0; i < options.profile.entries().size(); ++i) {
    if (profile.holds(i) && result.known_of(i) == 0)
      column.unseen.push_back(options.profile.entries()[i].id);
  }
  return column;
}

std::string short_versions(const Versions& versions) {
  std::string text;
  for (const auto& [name, version] : versions) {
    if (name == "python" || name == "numpy") continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, version);
  }
  return text;
}

}  // namespace rematch::conform
