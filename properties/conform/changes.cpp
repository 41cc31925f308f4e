#include "properties/conform/changes.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace rematch::conform {
namespace {

/// The parts of a divergence that tell whether it is the same one.
struct Seen {
  std::uint64_t cases = 0;
  std::set<std::string> laws;
};

/// A column, as far as it matters here.
struct Side {
  Versions versions;
  std::uint64_t cases = 0;
  bool judged = false;
  std::map<std::string, Mark> marks;
  /// Known ones and limits, by their ids. A new one has no name that lasts.
  std::map<std::string, Seen> divergences;
};

Side side_of(const Column& column) {
  Side side;
  side.versions = column.versions;
  side.cases = column.cases;
  side.judged = !column.cells.empty();
  for (std::size_t i = 0; i < column.cells.size(); ++i) {
    side.marks[std::string(laws()[i].name)] = column.cells[i].mark();
  }
  for (const Divergence& d : column.divergences) {
    if (d.mark == Mark::fresh) continue;
    Seen& seen = side.divergences[d.id];
    seen.cases = d.cases;
    for (const auto& [law, cases] : d.laws) seen.laws.insert(law);
  }
  return side;
}

/// Divergences that one side has and the other one lacks, although chance would hardly have hidden
/// it there: with five cases expected, it does so once in 150 hunts.
std::vector<std::string> only_of(const Side& one, const Side& other) {
  constexpr double kExpected = 5;
  std::vector<std::string> ids;
  for (const auto& [id, seen] : one.divergences) {
    if (other.divergences.contains(id) || one.cases == 0) continue;
    const double expected = static_cast<double>(seen.cases) * static_cast<double>(other.cases) /
                            static_cast<double>(one.cases);
    if (expected >= kExpected) ids.push_back(id);
  }
  return ids;
}

bool share_a_law(const Seen& a, const Seen& b) {
  return std::any_of(a.laws.begin(), a.laws.end(),
                     [&](const std::string& law) { return b.laws.contains(law); });
}

/// Whether one of `ids`, which only `side` has, may be the same by another name.
bool is_renamed(const Seen& seen, const Side& side, const std::vector<std::string>& ids) {
  return std::any_of(ids.begin(), ids.end(), [&](const std::string& id) {
    return share_a_law(seen, side.divergences.at(id));
  });
}

class Comparison {
 public:
  Comparison(std::string subject, const Side& before, const Side& now, std::vector<Change>& changes)
      : subject_(std::move(subject)), before_(before), now_(now), changes_(changes) {}

  void run() {
    versions();
    if (before_.judged != now_.judged) {
      add_change(now_.judged ? Change::Kind::other : Change::Kind::broken,
                 now_.judged ? "is judged now" : "is no longer judged");
    }
    if (!before_.judged || !now_.judged) return;
    divergences();
    marks();
  }

 private:
  void add_change(Change::Kind kind, std::string text) {
    changes_.push_back({kind, subject_, std::move(text)});
  }

  void versions() {
    for (const auto& [name, version] : now_.versions) {
      const auto earlier = before_.versions.find(name);
      if (earlier == before_.versions.end() || earlier->second == version) continue;
      add_change(Change::Kind::other, fmt::format("{} {} was {}", name, version, earlier->second));
    }
  }

  void divergences() {
    const std::vector<std::string> gone = only_of(before_, now_);
    const std::vector<std::string> came = only_of(now_, before_);
    for (const std::string& id : gone) {
      const Seen& seen = before_.divergences.at(id);
      add_change(is_renamed(seen, now_, came) ? Change::Kind::other : Change::Kind::mended,
                 fmt::format("{} was seen in {} of {}, and now in none of {}", id, seen.cases,
                             before_.cases, now_.cases));
    }
    for (const std::string& id : came) {
      const Seen& seen = now_.divergences.at(id);
      const bool was_new = std::any_of(seen.laws.begin(), seen.laws.end(), [&](const auto& law) {
        const auto mark = before_.marks.find(law);
        return mark != before_.marks.end() && mark->second == Mark::fresh;
      });
      add_change(
          was_new || is_renamed(seen, before_, gone) ? Change::Kind::other : Change::Kind::broken,
          fmt::format("{} is seen in {} of {}, and was in none of {}", id, seen.cases, now_.cases,
                      before_.cases));
    }
  }

  void marks() {
    for (const auto& [law, mark] : now_.marks) {
      const auto found = before_.marks.find(law);
      if (found == before_.marks.end()) continue;
      const Mark earlier = found->second;
      const bool was_judged = earlier > Mark::not_observed;
      const bool is_kept = mark == Mark::kept || mark == Mark::too_few;
      if (mark == Mark::fresh && earlier != Mark::fresh) {
        add_change(Change::Kind::broken,
                   fmt::format("{} is violated in a new way, and was {}", law, to_string(earlier)));
      } else if (earlier == Mark::fresh && mark != Mark::fresh) {
        add_change(is_kept ? Change::Kind::mended : Change::Kind::other,
                   fmt::format("{} was violated in a new way, and is {}", law, to_string(mark)));
      } else if (was_judged != (mark > Mark::not_observed)) {
        add_change(Change::Kind::other,
                   fmt::format("{} is {}, and was {}", law, to_string(mark), to_string(earlier)));
      }
    }
  }

  std::string subject_;
  const Side& before_;
  const Side& now_;
  std::vector<Change>& changes_;
};

}  // namespace

std::vector<Change> changes_since(const Page& earlier, const Page& page) {
  std::map<std::string, Side> before;
  for (const Column& column : earlier.columns) before[column.subject] = side_of(column);
  std::vector<Change> changes;
  std::set<std::string> here;
  for (const Column& column : page.columns) {
    here.insert(column.subject);
    const auto found = before.find(column.subject);
    if (found == before.end()) {
      changes.push_back({Change::Kind::other, column.subject, "was not on the earlier page"});
    } else {
      const Side now = side_of(column);
      Comparison(column.subject, found->second, now, changes).run();
    }
  }
  for (const auto& [subject, side] : before) {
    if (!here.contains(subject)) {
      changes.push_back({Change::Kind::other, subject, "was on the earlier page only"});
    }
  }
  std::stable_sort(changes.begin(), changes.end(),
                   [](const Change& a, const Change& b) { return a.kind < b.kind; });
  return changes;
}

}  // namespace rematch::conform
