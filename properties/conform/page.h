#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "properties/hunt/frameworks.h"
#include "properties/hunt/hunt_result.h"
#include "properties/hunt/profile.h"

namespace rematch::conform {

/// The verdict of a page on a law and an implementation; a later one outweighs those before it.
enum class Mark : std::uint8_t {
  not_applicable,  ///< No case had anything to judge.
  not_observed,    ///< The implementation does not show what the law reads.
  too_few,         ///< Kept, in fewer than kFewStructures structures.
  kept,
  not_promised,  ///< Violated, as the implementation says or as follows from what it says.
  known,         ///< Violated in a way that its profile lists.
  fresh,         ///< Violated in another way.
};
inline constexpr std::size_t kMarks = static_cast<std::size_t>(Mark::fresh) + 1;
/// "n/a", "not observed", "too few", "kept", "not promised", "known", "new".
std::string_view to_string(Mark mark);
std::optional<Mark> mark_named(std::string_view name);

/// The cases behind the mark of a law. A violating case counts once for each law. None has the mark
/// `too_few`, which is that of a cell alone.
struct Cell {
  std::array<std::uint64_t, kMarks> cases{};
  /// Distinct structures among the cases that were judged.
  std::uint64_t structures = 0;
  std::uint64_t of(Mark mark) const { return cases[static_cast<std::size_t>(mark)]; }
  std::uint64_t judged() const;
  Mark mark() const;
};

/// How a user meets a divergence, the worst first.
enum class Harm : std::uint8_t {
  silent,  ///< Numbers, masks or states are wrong, or a gradient is missing, and no error says so.
  loud,    ///< An error, or the end of the process.
  cost,    ///< Recomputations or bytes alone.
  own,     ///< Something else that the implementation states by itself.
};
inline constexpr std::size_t kHarms = static_cast<std::size_t>(Harm::own) + 1;
/// "silent", "an error", "cost", "its own statement".
std::string_view to_string(Harm harm);

/// One way in which an implementation violates laws.
struct Divergence {
  Mark mark = Mark::fresh;
  /// Id of the profile's entry; for a new one its law and a number: "outputs-1".
  std::string id;
  std::string why;       ///< From the entry; empty for a new one.
  std::string reported;  ///< May be empty, as the next ones.
  std::string shown_by;  ///< KnownDivergence::script.
  std::string since;
  bool plain_too = false;        ///< KnownDivergence::plain_too.
  bool moves_gradients = false;  ///< KnownDivergence::moves_gradients.
  std::uint64_t cases = 0;
  /// In how many cases it violates each law.
  std::map<std::string, std::uint64_t, std::less<>> laws;
  /// The violation of the smallest case.
  Violation violation;
  Case smallest;
  std::uint64_t index = 0;  ///< Number of the first case in the hunt.
  /// Files below the page's folder, and command lines; empty where there is none.
  std::string file;
  std::string script;
  std::string replay;
  std::string unshrunk;

  Harm harm() const;
  /// Whether the framework is wrong and no error says so: in a case, or where only a statement of
  /// its own and a script show it.
  bool is_silent() const { return harm() == Harm::silent || !shown_by.empty(); }
  /// In how many cases a gradient differs or is missing, as far as is known.
  std::uint64_t wrong_gradients() const;
};

/// What one law of a topic says for all of them: the most violated one, else the one that judged
/// the fewest structures. A topic is as strong as its weakest law.
struct TopicCell {
  Mark mark = Mark::not_applicable;
  std::uint64_t violating = 0;  ///< Cases with that mark, where it is that of a violation.
  std::uint64_t judged = 0;
  std::uint64_t structures = 0;
  std::string_view law;
};

/// The outcome of the hunt of one subject.
struct Column {
  std::string subject;
  Versions versions;
  /// Why it was not judged, or not to the end, and what to do; empty if all is well.
  std::string problem;
  bool interrupted = false;
  /// What judged it, such as a commit; empty where none was given.
  std::string state;
  std::uint64_t cases = 0;
  std::uint64_t structures = 0;
  std::uint64_t not_judged = 0;
  /// The most frequent reason.
  std::string why_not_judged;
  double seconds = 0;
  std::vector<std::string> shortfalls;
  /// By law, in the order of laws(); empty if nothing was judged.
  std::vector<Cell> cells;
  /// New ones first, then those with most cases.
  std::vector<Divergence> divergences;
  /// Entries of the profile that nothing showed.
  std::vector<std::string> unseen;
  /// Entries of the profile that no case of the hunt showed, but their example or script.
  std::vector<std::string> shown;

  /// The subject's name up to its first colon.
  std::string framework() const { return subject.substr(0, subject.find(':')); }
  TopicCell cell_of(Topic topic) const;
  /// What the weakest of these laws says. Laws that are sampled, in few cases by design, count only
  /// where they are violated.
  TopicCell weakest_of(const std::function<bool(const Law&)>& has) const;
  /// The weakest of the laws about gradients.
  TopicCell gradients() const;
  double cases_per_second() const { return seconds > 0 ? static_cast<double>(cases) / seconds : 0; }
};

struct Page {
  std::uint64_t seed = 0;
  std::string mix;
  std::vector<Column> columns;
};

/// The column of a hunt with keep_going. Files and command lines are left to whoever writes them.
Column column_of(const std::string& subject, const HuntOptions& options, const HuntResult& result);

/// "torch 2.15.0": without what every subject in Python has.
std::string short_versions(const Versions& versions);

std::string page_json(const Page& page);
/// The page that page_json() wrote. Throws std::invalid_argument with the place where the text is
/// no such page. Laws that are gone are left out.
Page page_from_json(std::string_view text);
/// `known` says why a law is not observed.
std::string page_markdown(const Page& page, const Frameworks& known = known_frameworks());

}  // namespace rematch::conform
