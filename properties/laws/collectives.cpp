#include <algorithm>
#include <cstdint>
#include <iterator>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "properties/case/policy.h"
#include "properties/laws/support.h"

namespace rematch {
namespace {

constexpr std::string_view kCollectives = "collectives";
using Kind = CollectiveKind;
using Phase = CollectivePhase;
using Readings = std::vector<CollectiveReading>;

bool is_mark(const CollectiveReading& c) { return c.kind == Kind::ran || c.kind == Kind::stopped; }
bool is_same(const CollectiveReading& a, const CollectiveReading& b) {
  return a.kind == b.kind && a.unit == b.unit && a.bytes == b.bytes;
}

template <class Wanted>
Readings those(const Readings& all, const Wanted& wanted) {
  Readings found;
  std::copy_if(all.begin(), all.end(), std::back_inserter(found), wanted);
  return found;
}
Readings in(const Readings& all, Phase phase) {
  return those(all, [=](const auto& c) { return c.phase == phase; });
}
Readings of(const Readings& all, Kind kind) {
  return those(all, [=](const auto& c) { return c.kind == kind; });
}
std::int64_t bytes(const Readings& all) {
  return std::accumulate(all.begin(), all.end(), std::int64_t{0},
                         [](std::int64_t sum, const auto& c) { return sum + c.bytes; });
}

/// "gather of 32 bytes, reduction of 16 bytes".
std::string text_of(const Readings& sent) {
  constexpr std::string_view kNames[] = {"gather",         "reduction",    "other",
                                         "still gathered", "end of a run", "early stop of a run"};
  std::string text;
  for (const CollectiveReading& c : sent) {
    text += (text.empty() ? "" : ", ") + std::string(kNames[static_cast<std::size_t>(c.kind)]);
    if (!is_mark(c)) text += " of " + std::to_string(c.bytes) + " bytes";
  }
  return text.empty() ? "none" : text;
}

/// The number of segments that a layer lies in.
int depth_of(const std::vector<SegmentSpec>& level, int layer) {
  const auto its = std::find_if(level.begin(), level.end(), [&](const SegmentSpec& s) {
    return s.begin <= layer && layer < s.end;
  });
  return its == level.end() ? 0 : 1 + depth_of(its->nested, layer);
}

Violation wrong(const std::string& what, const Readings& expected, const Readings& got) {
  return {kCollectives, what, text_of(expected), text_of(got)};
}

std::optional<Violation> compare(const std::string& what, const Readings& there,
                                 const Readings& here) {
  const auto [a, b] = std::mismatch(there.begin(), there.end(), here.begin(), here.end(), is_same);
  if (a == there.end() && b == here.end()) return std::nullopt;
  return wrong("collective " + std::to_string(a - there.begin() + 1) + " of " + what,
               {a, there.end()}, {b, here.end()});
}

/// Collectives of both runs for one forward and its backwards.
struct Window {
  const Evidence& e;
  int step;
  int microbatch;

  std::optional<Violation> judge() const {
    const Readings there = of_place(e.plain);
    const Readings here = of_place(e.checkpointed);
    const auto outside = [](const auto& c) { return c.unit < 0 || c.kind == Kind::other; };
    auto v = compare("the forward", in(there, Phase::forward), in(here, Phase::forward));
    if (!v) v = compare("outside of all units", those(there, outside), those(here, outside));
    for (const UnitReading& u : e.checkpointed.units) {
      const auto its = [&](const auto& c) { return c.unit == u.unit; };
      const auto judge_unit = u.split ? &Window::judge_split : &Window::judge_sharded;
      if (!v) v = (this->*judge_unit)(u, those(there, its), those(here, its));
    }
    return v;
  }

  Readings of_place(const Record& r, bool all_of_step = false) const {
    return those(r.collectives, [&](const CollectiveReading& c) {
      return c.step == step && (all_of_step || c.microbatch == microbatch);
    });
  }

  /// Its parameters are gathered, or whole, and its gradients are reduced.
  std::optional<Violation> judge_sharded(const UnitReading& u, const Readings& there,
                                         const Readings& here) const {
    const Readings left = of(here, Kind::kept);
    if (bytes(left) > bytes(of(there, Kind::kept)))
      return wrong(name(u) + ", after the backward", of(there, Kind::kept), left);
    if (has_several_losses()) return std::nullopt;
    // Where forwards run first, what one backward gathers ahead may be for another. Where nothing
    // trains, a backward may pass the unit, or only a recomputation runs it.
    const bool waits = e.c.protocol.forwards_first;
    const auto its = [&](const auto& c) { return c.unit == u.unit; };
    const bool trains = !of(those(e.plain.collectives, its), Kind::reduce).empty();
    if (trains && (!waits || microbatch == 0)) {
      const auto gathers = [&](const Record& r) {
        return those(of(of_place(r, waits), Kind::gather),
                     [&](const auto& c) { return its(c) && c.phase != Phase::forward; });
      };
      const std::string what = name(u) + ", the backward and its recomputations";
      if (auto v = compare(what, gathers(e.plain), gathers(e.checkpointed))) return v;
    }
    // Replicated parameters are reduced in buckets, whose number is up to the implementation.
    const Readings wanted = of(there, Kind::reduce);
    const Readings got = of(here, Kind::reduce);
    const bool alike = bytes(wanted) == bytes(got) && (u.replicated || wanted.size() == got.size());
    if (alike && in(got, Phase::recomputation).empty()) return std::nullopt;
    return wrong(name(u) + ", reductions of gradients", wanted, got);
  }

  /// Its layer is split: collectives up to each mark are those of one run.
  std::optional<Violation> judge_split(const UnitReading& u, const Readings& there,
                                       const Readings& here) const {
    if (has_several_losses()) return std::nullopt;
    const int depth = depth_of(segments_of(e.c), u.end - 1);
    const bool is_kept = kept_by_policy(e.c, u.end - 1);
    Readings whole = in(here, Phase::forward);
    whole.erase(std::find_if(whole.begin(), whole.end(), is_mark), whole.end());
    Readings run;
    int runs = 0;
    for (const CollectiveReading& c : in(here, Phase::recomputation)) {
      run.push_back(c);
      if (!is_mark(c)) continue;
      const std::size_t sent = run.size() - 1;
      const auto [end, _] =
          std::mismatch(run.begin(), run.end(), whole.begin(), whole.end(), is_same);
      const bool may_lack = c.kind == Kind::stopped || (is_kept && sent == 0);
      const bool must_lack = is_kept && depth == 1;  // Further segments run it without the policy.
      if (end < std::prev(run.end()) || (sent < whole.size() && !may_lack) ||
          (must_lack && sent > 0)) {
        if (must_lack) whole.clear();
        return wrong(name(u) + ", a run in the recomputation", whole, run);
      }
      run.clear();
      if (++runs > e.c.protocol.backwards * depth) run.push_back(c);
    }
    if (!run.empty()) return wrong(name(u) + ", more runs than backwards ask for", {}, run);
    // A reentrant segment makes values require gradients that the plain run wants none of.
    const Readings backward = in(there, Phase::backward);
    if (backward.empty()) return std::nullopt;
    return compare("the backward of " + name(u), backward, in(here, Phase::backward));
  }

  static std::string name(const UnitReading& u) {
    return "unit " + std::to_string(u.unit) + " (layers " + std::to_string(u.begin) + " to " +
           std::to_string(u.end - 1) + ")";
  }
  /// Each of several has backwards of its own, which reach some units only.
  bool has_several_losses() const { return roots_of(e.c, e.forecast.output_flags).size() > 1; }
};

std::optional<Violation> check_collectives(const Evidence& e) {
  if (e.plain.units.empty() || e.checkpointed.units.empty()) {
    return Violation{kCollectives, "units", "recorded", std::string(kNotRecorded)};
  }
  return for_each_forward(e.c.protocol, [&](int step, int microbatch) {
    auto v = Window{e, step, microbatch}.judge();
    if (v) v->place = place_of(step, microbatch) + ", " + v->place;
    return v;
  });
}

}  // namespace

extern const Law collectives_law;
const Law collectives_law{
    .name = kCollectives,
    .statement =
        "On several devices, a checkpoint sends what the plain run sends. The forward sends the "
        "same in the same order. A backward with its recomputations gathers a unit's parameters, "
        "and reduces its gradients, as often. Where layers are split, each recomputation of one "
        "sends what its forward sent. After the backward nothing more is left gathered.",
    .harm =
        "Training waits for parameters that were there, holds more memory than sharding promises, "
        "hangs, or trains on gradients of one device.",
    .topic = Topic::recomputation,
    .check = check_collectives,
    .reads = {Observable::collectives},
    // Backwards for some tensors reach some units only.
    .applies = [](const Evidence& e) { return !e.c.protocol.partial; }};

}  // namespace rematch
