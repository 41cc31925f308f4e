#include <algorithm>
#include <climits>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "properties/case/policy.h"
#include "properties/laws/support.h"

namespace rematch {
namespace {

constexpr std::string_view kCollectives = "collectives";
constexpr std::string_view kNoUnit = "no unit";

using Kind = CollectiveKind;
using Phase = CollectivePhase;
using Readings = std::vector<CollectiveReading>;

bool is_mark(const CollectiveReading& c) { return c.kind == Kind::ran || c.kind == Kind::stopped; }
bool is_same(const CollectiveReading& a, const CollectiveReading& b) {
  return a.kind == b.kind && a.unit == b.unit && a.bytes == b.bytes;
}

/// Whether each run of the unit sends values, or its backward gradients of values: its layers are
/// split among devices.
bool sends_values(const UnitReading& u) {
  return u.gathers_operand + u.gathers + u.reduces + u.gathers_gradient + u.gathers_back +
             u.reduces_back >
         0;
}

/// "gather of 32 bytes, reduction of 16 bytes".
std::string text_of(const Readings& sent) {
  std::string text;
  for (const CollectiveReading& c : sent) {
    text += text.empty() ? "" : ", ";
    if (is_mark(c)) {
      text += c.kind == Kind::ran ? "end of a run" : "early stop of a run";
      continue;
    }
    text += c.kind == Kind::gather ? "gather" : c.kind == Kind::reduce ? "reduction" : "other";
    text += " of " + std::to_string(c.bytes) + " bytes";
  }
  return text.empty() ? "none" : text;
}

/// Whether one of the segments, or of those nested in them, that end ahead of layer `end` is
/// reentrant.
bool has_reentrant(const std::vector<SegmentSpec>& segments, int end = INT_MAX) {
  return std::any_of(segments.begin(), segments.end(), [end](const SegmentSpec& s) {
    return (s.choice.variant == Variant::reentrant && s.end <= end) || has_reentrant(s.nested, end);
  });
}

/// The segments that a layer lies in, the outermost first.
std::vector<SegmentSpec> segments_around(const Case& c, int layer) {
  std::vector<SegmentSpec> found;
  std::vector<SegmentSpec> level = segments_of(c);
  for (;;) {
    const auto its = std::find_if(level.begin(), level.end(), [&](const SegmentSpec& s) {
      return s.begin <= layer && layer < s.end;
    });
    if (its == level.end()) return found;
    found.push_back(*its);
    level = std::vector<SegmentSpec>(found.back().nested);
  }
}

/// Collectives of both runs for one forward and its backwards.
class Window {
 public:
  Window(const Evidence& e, int step, int microbatch)
      : e_(e),
        step_(step),
        microbatch_(microbatch),
        plain_(of(e.plain, false)),
        seen_(of(e.checkpointed, false)) {}

  std::optional<Violation> judge() const {
    if (auto v = judge_forward()) return v;
    for (const UnitReading& u : e_.checkpointed.units) {
      auto v = sends_values(u) ? judge_split(u) : judge_sharded(u);
      if (v) return v;
    }
    return std::nullopt;
  }

 private:
  Readings of(const Record& r, bool all_of_step) const {
    Readings found;
    std::copy_if(r.collectives.begin(), r.collectives.end(), std::back_inserter(found),
                 [&](const CollectiveReading& c) {
                   return c.step == step_ && (all_of_step || c.microbatch == microbatch_);
                 });
    return found;
  }
  bool waits() const { return e_.c.protocol.forwards_first; }
  int backwards() const { return e_.c.protocol.backwards; }
  /// Each has backwards of its own, which reach some units only: how many nothing here says.
  int losses() const { return static_cast<int>(roots_of(e_.c, e_.forecast.output_flags).size()); }

  /// Of one unit, or of all.
  static Readings in(const Readings& all, Phase phase, std::optional<int> unit = {}) {
    Readings found;
    std::copy_if(all.begin(), all.end(), std::back_inserter(found),
                 [&](const auto& c) { return c.phase == phase && (!unit || c.unit == *unit); });
    return found;
  }
  static int count(const Readings& all, Kind kind, Phase phase, const UnitReading& u) {
    const Readings found = in(all, phase, u.unit);
    return static_cast<int>(
        std::count_if(found.begin(), found.end(), [&](const auto& c) { return c.kind == kind; }));
  }
  static std::int64_t bytes(const Readings& all, Kind kind, const UnitReading& u) {
    std::int64_t sum = 0;
    for (const CollectiveReading& c : in(all, Phase::backward, u.unit)) {
      if (c.kind == kind) sum += c.bytes;
    }
    return sum;
  }

  /// Units are gathered, and send, in the order in which they run, as often as without a
  /// checkpoint; and nothing is sent outside of units that is not sent without one.
  std::optional<Violation> judge_forward() const {
    const Readings there = in(plain_, Phase::forward);
    const Readings here = in(seen_, Phase::forward);
    const auto [a, b] =
        std::mismatch(there.begin(), there.end(), here.begin(), here.end(), is_same);
    if (a != there.end() || b != here.end()) {
      return violation("collective " + std::to_string(a - there.begin() + 1) + " of the forward",
                       a == there.end() ? "none" : text_of({*a}) + ", " + name(a->unit),
                       b == here.end() ? "none" : text_of({*b}) + ", " + name(b->unit));
    }
    Readings outside = plain_;
    for (const CollectiveReading& c : seen_) {
      if (c.kind != Kind::other && name(c.unit) != kNoUnit) continue;
      const auto its = std::find_if(outside.begin(), outside.end(), [&](const auto& x) {
        return is_same(x, c) && x.phase == c.phase;
      });
      if (its == outside.end()) {
        return violation("collectives outside of all units", "as in the plain run", text_of({c}));
      }
      outside.erase(its);
    }
    return std::nullopt;
  }

  std::optional<Violation> judge_sharded(const UnitReading& u) const {
    std::int64_t whole = 0;
    std::int64_t trained = 0;
    int each = 1;
    for (const ShardReading& s : e_.checkpointed.shards) {
      if (s.unit != u.unit) continue;
      whole += s.bytes;
      if (e_.forecast.hooks.at(static_cast<std::size_t>(s.parameter)) == 0) continue;
      trained += s.bytes + s.added;
      each += s.added > 0 ? 1 : 0;
    }
    for (const CollectiveReading& c : seen_) {
      if (c.unit != u.unit || c.kind != Kind::gather || c.bytes == whole) continue;
      return violation("gather of " + name(u.unit), std::to_string(whole) + " bytes",
                       std::to_string(c.bytes));
    }
    // Where all forwards of a step run first, what one backward gathers ahead may be for another.
    if (!waits() || microbatch_ == 0) {
      const Readings plain = of(e_.plain, waits());
      const Readings seen = of(e_.checkpointed, waits());
      const int again = count(seen, Kind::gather, Phase::recomputation, u);
      if (again > 0 && !u.recomputed) return wrong(u, "gathers in the recomputation", 0, again);
      const int there = count(plain, Kind::gather, Phase::backward, u);
      const int here = again + count(seen, Kind::gather, Phase::backward, u);
      // Where nothing trains, the backward may pass the unit, or only a recomputation runs it; and
      // several losses may share what one of them gathered. The first finds what stays gathered.
      const bool open = !u.replicated && (trained == 0 || losses() > 1);
      const int all = backwards() * (waits() ? e_.c.protocol.microbatches : 1);
      const int found = u.stays ? 1 : 0;
      const int least = !open ? there : trained > 0 ? std::min(there, all - found) : 0;
      const int most = open ? std::max(there, all * std::max(losses(), 1) - found) : there;
      if (here < least || here > most) {
        return wrong(u, "gathers in the backward and its recomputations",
                     here < least ? least : most, here);
      }
    }
    const int early = count(seen_, Kind::reduce, Phase::recomputation, u);
    if (early > 0) return wrong(u, "reductions outside of the backward", 0, early);
    // A reentrant segment gives outputs that a loss does not reach zeros, which are reduced, too.
    const bool reduces = !u.accumulates || (u.learns && step_ == 0 && microbatch_ == 0) ||
                         microbatch_ == (waits() ? 0 : e_.c.protocol.microbatches - 1);
    const bool zeros = reduces && losses() > 1 && has_reentrant(segments_of(e_.c));
    const int times = count(plain_, Kind::reduce, Phase::backward, u);
    const int got = count(seen_, Kind::reduce, Phase::backward, u);
    const std::int64_t sum = bytes(plain_, Kind::reduce, u);
    const std::int64_t sent = bytes(seen_, Kind::reduce, u);
    // Replicated parameters are reduced in buckets, whose number is up to the implementation.
    const bool alike = sent == sum && (u.replicated || got == times);
    const int most = backwards() * losses();
    if (!alike && !(zeros && sum <= sent && sent <= most * trained && got <= most * each)) {
      return violation(name(u.unit) + ", reductions of gradients",
                       std::to_string(times) + ", of " + std::to_string(sum) + " bytes",
                       std::to_string(got) + ", of " + std::to_string(sent) + " bytes");
    }
    const std::int64_t kept = bytes(seen_, Kind::kept, u);
    if (kept <= bytes(plain_, Kind::kept, u)) return std::nullopt;
    return violation(name(u.unit) + " after the backward", "sharded",
                     std::to_string(kept) + " bytes are still gathered");
  }

  /// Collectives up to each mark are those of one run.
  std::optional<Violation> judge_split(const UnitReading& u) const {
    if (losses() > 1) return std::nullopt;
    const std::vector<SegmentSpec> around = segments_around(e_.c, u.end - 1);
    const bool is_kept = kept_by_policy(e_.c, u.end - 1);
    const bool may_stop = std::any_of(around.begin(), around.end(), [](const SegmentSpec& s) {
      return s.choice.variant == Variant::non_reentrant && s.choice.early_stop;
    });
    Readings whole = in(seen_, Phase::forward, u.unit);
    whole.erase(std::find_if(whole.begin(), whole.end(), is_mark), whole.end());
    Readings sent;
    int runs = 0;
    for (const CollectiveReading& c : in(seen_, Phase::recomputation, u.unit)) {
      if (!is_mark(c)) {
        sent.push_back(c);
        continue;
      }
      ++runs;
      const bool is_part = sent.size() <= whole.size() &&
                           std::equal(sent.begin(), sent.end(), whole.begin(), is_same);
      const bool is_stopped = c.kind == Kind::stopped && may_stop;
      // A segment around the one of the policy runs it without what that keeps.
      const bool may_send = !is_kept || around.size() > 1;
      const bool may_lack = is_stopped || (is_kept && sent.empty());
      if (!is_part || (c.kind == Kind::stopped && !may_stop) || (!may_send && !sent.empty()) ||
          (sent.size() < whole.size() && !may_lack)) {
        sent.push_back(c);
        return violation(
            name(u.unit) + ", a run in the recomputation",
            may_send ? text_of(whole) + ", as in the forward" : "none: a policy keeps what it made",
            text_of(sent));
      }
      sent.clear();
    }
    if (!sent.empty()) {
      return violation(name(u.unit) + ", outside of its runs in the recomputation", "none",
                       text_of(sent));
    }
    const Readings there = in(plain_, Phase::backward, u.unit);
    const Readings here = in(seen_, Phase::backward, u.unit);
    // Once for each segment around it, and at least once for a backward that passes through it.
    const Forecast& f = e_.forecast;
    const bool passes = !here.empty() ||
                        (f.saves_known && f.executions.at(static_cast<std::size_t>(u.end - 1)) > 1);
    const int least = passes && !around.empty() ? backwards() : 0;
    const int most = backwards() * static_cast<int>(around.size());
    if (runs < least || runs > most) {
      std::optional<Violation> v = wrong(u, "recomputations", runs < least ? least : most, runs);
      v->sites = {{-1, -1, u.end - 1}};
      return v;
    }
    if (std::equal(here.begin(), here.end(), there.begin(), there.end(), is_same)) {
      return std::nullopt;
    }
    // All that a reentrant segment makes requires a gradient if one of its inputs does, which may
    // be one that the layers ahead of the unit do not read. Then it sends all that it may.
    std::vector<Kind> all;
    for (int call = 0; call < backwards(); ++call) {
      if (u.gathers_gradient > 0) all.push_back(Kind::gather);
      if (u.gathers_back > 0) all.push_back(Kind::gather);
      if (u.reduces_back > 0) all.push_back(Kind::reduce);
    }
    const bool sends_all =
        std::equal(here.begin(), here.end(), all.begin(), all.end(),
                   [](const CollectiveReading& c, Kind kind) { return c.kind == kind; });
    const auto reads = [](const LayerSpec& l) { return !l.from.empty(); };
    if (sends_all && there.size() < here.size() &&
        std::any_of(e_.c.layers.begin(), e_.c.layers.end(), reads) &&
        has_reentrant(segments_of(e_.c), u.begin)) {
      return std::nullopt;
    }
    return violation(name(u.unit) + ", collectives in the backward", text_of(there), text_of(here));
  }

  std::string name(int unit) const {
    for (const UnitReading& u : e_.checkpointed.units) {
      if (u.unit != unit) continue;
      return "unit " + std::to_string(unit) + " (layers " + std::to_string(u.begin) + " to " +
             std::to_string(u.end - 1) + ")";
    }
    return std::string(kNoUnit);
  }
  std::optional<Violation> wrong(const UnitReading& u, std::string_view what, int expected,
                                 int got) const {
    return violation(name(u.unit) + ", " + std::string(what), std::to_string(expected),
                     std::to_string(got));
  }
  std::optional<Violation> violation(const std::string& what, const std::string& expected,
                                     std::string got) const {
    return Violation{kCollectives, place_of(step_, microbatch_) + ", " + what, expected,
                     std::move(got)};
  }

  const Evidence& e_;
  int step_;
  int microbatch_;
  Readings plain_;
  Readings seen_;
};

std::optional<Violation> check_collectives(const Evidence& e) {
  const ProtocolSpec& p = e.c.protocol;
  for (const Record* r : {&e.plain, &e.checkpointed}) {
    if (!r->units.empty() && r->shards.size() >= e.geometry.parameters.size()) continue;
    return Violation{kCollectives, "units and their parameters", "recorded",
                     std::string(kNotRecorded)};
  }
  for (const CollectiveReading& c : e.checkpointed.collectives) {
    if (c.step >= 0 && c.step < p.steps && c.microbatch >= 0 && c.microbatch < p.microbatches)
      continue;
    return Violation{kCollectives, "collectives outside of all forwards", "none",
                     place_of(c.step, c.microbatch)};
  }
  return for_each_forward(
      p, [&](int step, int microbatch) { return Window(e, step, microbatch).judge(); });
}

// Backwards for some tensors reach some units only, and where several losses of other forwards
// wait, nothing says which of them a prefetch is for.
bool applies_collectives(const Evidence& e) {
  const ProtocolSpec& p = e.c.protocol;
  return !p.partial && !(p.auxiliary_losses && p.forwards_first);
}

}  // namespace

extern const Law collectives_law;
const Law collectives_law{
    .name = kCollectives,
    .statement =
        "On several devices, a checkpoint changes nothing of what is sent, but for what its "
        "recomputations need. The forward gathers and sends as the plain run does, in its order. A "
        "backward with its recomputations gathers a unit as often as the plain backward, and "
        "reduces "
        "as many gradients, as often. Where layers are split instead, each run of a unit in a "
        "recomputation sends what its run in the forward sent, and the backward what the plain one "
        "does. After the backward nothing is left gathered that the plain run does not leave, and "
        "nothing else is sent.",
    .harm =
        "Training waits for parameters that were there already, holds more memory than its "
        "sharding promises, hangs, or trains on gradients of one device.",
    .topic = Topic::recomputation,
    .check = check_collectives,
    .reads = {Observable::collectives},
    .applies = applies_collectives};

}  // namespace rematch
