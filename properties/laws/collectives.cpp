#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "properties/laws/support.h"
#include "properties/laws/unit_runs.h"
#include "properties/layers/layer.h"

namespace rematch {
namespace {

constexpr std::string_view kCollectives = "collectives";

using Kind = CollectiveKind;
using Phase = CollectivePhase;

std::string text_of(int count, std::int64_t bytes) {
  return std::to_string(count) + ", of " + std::to_string(bytes) + " bytes";
}

/// Bytes that the wrapping and the plan imply of one unit in one forward with its backward.
struct Implied {
  const UnitReading* unit = nullptr;
  /// Bytes of its parameters, of those that get a gradient, and of those of which only a part may
  /// get one: parameters of the subject's own layers.
  std::int64_t whole = 0;
  std::int64_t trained = 0;
  std::int64_t in_part = 0;
  /// How many gradients are added up ahead of each reduction, and their bytes.
  int sums = 0;
  std::int64_t added = 0;
};

std::vector<Implied> implied_by(const Evidence& e, const Record& r) {
  std::vector<Implied> units;
  for (const UnitReading& u : r.units) {
    Implied i{&u};
    for (const ShardReading& s : r.shards) {
      if (s.unit != u.unit) continue;
      const auto p = static_cast<std::size_t>(s.parameter);
      const auto layer = static_cast<std::size_t>(e.geometry.parameters.at(p).layer);
      i.whole += s.bytes;
      if (e.forecast.hooks.at(p) == 0) continue;
      i.trained += s.bytes;
      i.sums += s.added > 0 ? 1 : 0;
      i.added += s.added;
      if (e.c.layers.at(layer).kind == LayerKind::custom) i.in_part += s.bytes;
    }
    units.push_back(i);
  }
  return units;
}

/// Gathers of a unit that so many backwards of one forward and their recomputations imply.
int gathers_in_backwards(const ProtocolSpec& p, const Implied& i, int microbatch, int backwards) {
  if (i.unit->replicated || i.whole == 0) return 0;
  // Where all forwards run first, the first backward, that of the last one, finds what stays
  // gathered, and lets go of it.
  const bool found = i.unit->stays && (!p.forwards_first || microbatch + 1 == p.microbatches);
  return backwards - (found ? 1 : 0);
}

/// The collectives of a record, each with the forward that it is for. Where other forwards wait, a
/// backward may prefetch a unit for the next one: once it had its own gathers.
std::vector<CollectiveReading> attributed(const Evidence& e, const Record& record,
                                          const std::vector<Implied>& implied) {
  std::vector<CollectiveReading> all = record.collectives;
  const ProtocolSpec& p = e.c.protocol;
  if (!p.forwards_first) return all;
  for (const Implied& i : implied) {
    if (sends_values(*i.unit)) continue;
    // How many there were so far, and whether the last one was for the next backward.
    std::map<std::pair<int, int>, std::pair<int, bool>> backwards;
    for (CollectiveReading& c : all) {
      if (c.unit != i.unit->unit || c.kind != Kind::gather || c.phase == Phase::forward) continue;
      auto& [count, ahead] = backwards[{c.step, c.microbatch}];
      const int own = gathers_in_backwards(p, i, c.microbatch, p.backwards);
      if (c.microbatch > 0 && !ahead && count == own) {
        ahead = true;
        ++backwards[{c.step, --c.microbatch}].first;
      } else {
        ++count;
      }
    }
  }
  return all;
}

bool has_reentrant(const std::vector<SegmentSpec>& segments) {
  return std::any_of(segments.begin(), segments.end(), [](const SegmentSpec& s) {
    return s.choice.variant == Variant::reentrant || has_reentrant(s.nested);
  });
}

/// Collectives that a device took part in, for one forward and its backwards.
class Seen {
 public:
  /// `plain`: what the plain run shows, nullptr if this is it.
  Seen(const Evidence& e, const std::vector<CollectiveReading>& all,
       const std::vector<Implied>& implied, const Seen* plain, int step, int microbatch)
      : e_(e), implied_(implied), plain_(plain), step_(step), microbatch_(microbatch) {
    for (const CollectiveReading& c : all) {
      if (c.step == step && c.microbatch == microbatch) seen_.push_back(c);
    }
  }

  std::optional<Violation> judge() const {
    for (const CollectiveReading& c : seen_) {
      const auto is_known = [&](const Implied& i) { return i.unit->unit == c.unit; };
      if (c.kind == Kind::other || std::none_of(implied_.begin(), implied_.end(), is_known)) {
        return violation("collectives outside of all units", "none", text_of(1, c.bytes));
      }
    }
    for (const Implied& i : implied_) {
      if (sends_values(*i.unit)) {
        if (has_several_losses()) continue;
        const UnitRuns runs{e_,          *i.unit, step_,
                            microbatch_, seen_,   plain_ == nullptr ? nullptr : &plain_->seen_};
        if (auto v = judge_runs(runs))
          return violation(name(i) + ", " + v->place, v->expected, v->got);
        continue;
      }
      if (auto v = judge_gathers(i)) return v;
      if (auto v = judge_reductions(i)) return v;
      const int kept = count(i, Kind::kept, Phase::backward);
      if (kept > 0) {
        return violation(
            name(i) + " after the backward", "sharded",
            std::to_string(bytes(i, Kind::kept, Phase::backward)) + " bytes are still gathered");
      }
    }
    return judge_order();
  }

 private:
  std::string_view run() const { return plain_ == nullptr ? "plain run" : "checkpointed run"; }
  int losses() const { return static_cast<int>(roots_of(e_.c, e_.forecast.output_flags).size()); }
  bool has_backward() const { return losses() > 0; }
  /// Each has backwards of its own, which reach some units only: how many nothing here says.
  bool has_several_losses() const { return losses() > 1; }
  int most_backwards() const { return e_.c.protocol.backwards * std::max(losses(), 1); }

  bool reduces(const UnitReading& u) const {
    const ProtocolSpec& p = e_.c.protocol;
    const bool last = microbatch_ == (p.forwards_first ? 0 : p.microbatches - 1);
    return has_backward() && (!u.accumulates || last || is_learning(u));
  }
  bool is_learning(const UnitReading& u) const {
    return has_backward() && u.learns && step_ == 0 && microbatch_ == 0;
  }

  std::optional<Violation> judge_gathers(const Implied& i) const {
    const UnitReading& u = *i.unit;
    const int all = u.replicated || i.whole == 0 ? 0 : 1;
    const bool follows = e_.c.protocol.forwards_first && microbatch_ > 0;
    const int entered = u.stays && follows ? 0 : all;
    const int forward = count(i, Kind::gather, Phase::forward);
    const int recomputation = count(i, Kind::gather, Phase::recomputation);
    const int backward = count(i, Kind::gather, Phase::backward);
    if (forward != entered) return wrong(i, "gathers in the forward", entered, forward);
    const ProtocolSpec& p = e_.c.protocol;
    const int both = gathers_in_backwards(p, i, microbatch_, most_backwards());
    const int least = gathers_in_backwards(p, i, microbatch_, p.backwards);
    // A reentrant forward records nothing, so nothing may say that the backward of the unit begins
    // before its recomputation does.
    const int within = u.recomputed ? both : 0;
    if (recomputation > within)
      return wrong(i, "gathers in the recomputation", within, recomputation);
    // Nothing here says whether the backward passes through a unit in which nothing trains, or
    // prefetches it; it may gather it once.
    const int got = recomputation + backward;
    const bool may_be_none = i.trained == 0;
    if (got > both || (got < least && !may_be_none)) {
      return wrong(i, "gathers in the backward and its recomputations", both, got);
    }
    for (const CollectiveReading& c : seen_) {
      if (c.unit != u.unit || c.kind != Kind::gather || c.bytes == i.whole) continue;
      return violation("gather of " + name(i), std::to_string(i.whole) + " bytes",
                       std::to_string(c.bytes));
    }
    return std::nullopt;
  }

  std::optional<Violation> judge_reductions(const Implied& i) const {
    const UnitReading& u = *i.unit;
    const int early =
        count(i, Kind::reduce, Phase::forward) + count(i, Kind::reduce, Phase::recomputation);
    if (early > 0) return wrong(i, "reductions outside of the backward", 0, early);
    // Where no parameter gets a gradient, nothing tells a unit that there is a backward, but for
    // the one from which it learns that.
    const bool told = i.trained > 0 ? reduces(u) : is_learning(u);
    const int times = told ? most_backwards() : 0;
    const int least_times = told ? e_.c.protocol.backwards : 0;
    const int each = 1 + i.sums;
    const std::int64_t most = times * ((u.replicated ? i.whole : i.trained) + i.added);
    const std::int64_t least =
        least_times * ((u.replicated ? i.whole : i.trained - i.in_part) + i.added);
    const int got = count(i, Kind::reduce, Phase::backward);
    const std::int64_t sum = bytes(i, Kind::reduce, Phase::backward);
    // No forecast says how much of the subject's own layers is reduced, or for which loss; the
    // plain run does. But a reentrant segment gives outputs that a loss does not reach zeros.
    const bool is_as_plain = !has_several_losses() || !has_reentrant(segments_);
    if (plain_ != nullptr && least < most && is_as_plain) {
      const std::int64_t there = plain_->bytes(i, Kind::reduce, Phase::backward);
      if (sum != there) {
        return violation("reductions of gradients of " + name(i) + " in the backward",
                         text_of(plain_->count(i, Kind::reduce, Phase::backward), there) +
                             ", as in the plain run",
                         text_of(got, sum));
      }
    }
    // Replicated parameters are reduced in buckets, whose number is up to the implementation.
    const bool many = !u.replicated && (got < least_times * each || got > times * each);
    if (!many && least <= sum && sum <= most) return std::nullopt;
    return violation("reductions of gradients of " + name(i) + " in the backward",
                     text_of(times * each, most), text_of(got, sum));
  }

  /// Units are gathered in the order in which they run, and the backward gathers them in reverse,
  /// also where it prefetches. But a recomputation gathers those within its segment in the order in
  /// which they run, and where a unit ends with one within it, that one may come first, and what it
  /// prefetches. Where other forwards wait, or a forward has several backwards, what one backward
  /// prefetches may be for another, so only the forward's order is judged. The order of reductions
  /// is not: a unit whose inputs require no grad is reduced when all else is over.
  std::optional<Violation> judge_order() const {
    std::array<const Implied*, 3> last{};
    std::vector<const Implied*> in_backward;
    const bool is_alone = most_backwards() == 1 && !e_.c.protocol.forwards_first;
    for (const CollectiveReading& c : seen_) {
      const bool in_forward = c.phase == Phase::forward;
      if (c.kind != Kind::gather || (!in_forward && !is_alone)) continue;
      const Implied& next = *std::find_if(implied_.begin(), implied_.end(),
                                          [&](const Implied& i) { return i.unit->unit == c.unit; });
      if (sends_values(*next.unit)) continue;
      const Implied*& before = last[static_cast<std::size_t>(c.phase)];
      const Implied* after = nullptr;
      if (in_forward && before != nullptr && next.unit->begin < before->unit->begin) after = before;
      const bool is_around =
          std::any_of(implied_.begin(), implied_.end(), [&](const Implied& inner) {
            // Has nothing to gather, and may prefetch even so.
            const bool has_begun =
                inner.unit->stays || inner.whole == 0 ||
                std::find(in_backward.begin(), in_backward.end(), &inner) != in_backward.end();
            return &inner != &next && next.unit->begin <= inner.unit->begin &&
                   ends_with(*next.unit, inner.unit->end) && has_begun;
          });
      if (!in_forward && is_around) continue;
      if (!in_forward && !in_backward.empty()) {
        const auto [begin, end] = segment_of(next);
        if (end > segment_of(*in_backward.back()).second) after = in_backward.back();
        if (before != nullptr && segment_of(*before) == std::pair(begin, end)) {
          const bool early = c.phase == Phase::recomputation
                                 ? next.unit->begin < before->unit->begin
                                 : next.unit->end > before->unit->end;
          if (early) after = before;
        }
      }
      if (after != nullptr) {
        return violation("order of gathers", name(next) + " before " + name(*after),
                         name(*after) + " before " + name(next));
      }
      before = &next;
      if (!in_forward) in_backward.push_back(&next);
    }
    return std::nullopt;
  }

  /// Whether what comes out of a unit may be what its layer before `end` made.
  bool ends_with(const UnitReading& u, int end) const {
    if (end > u.end) return false;
    const auto& layers = e_.c.layers;
    return std::all_of(layers.begin() + end, layers.begin() + u.end, [&](const LayerSpec& l) {
      const Layer& kind = layer_of(l);
      const bool drops = l.kind == LayerKind::dropout || l.kind == LayerKind::gaussian_noise ||
                         l.kind == LayerKind::stochastic_depth;
      return kind.identity || kind.view ||
             (drops && (l.p == 0 || !trains_in(l, e_.c.protocol.train)));
    });
  }

  /// The layers that are recomputed together, of which the unit has some; else its own.
  std::pair<int, int> segment_of(const Implied& i) const {
    for (const SegmentSpec& s : segments_) {
      if (s.begin <= i.unit->begin && i.unit->end <= s.end) return {s.begin, s.end};
    }
    return {i.unit->begin, i.unit->end};
  }

  int count(const Implied& i, Kind kind, Phase phase) const {
    return static_cast<int>(
        std::count_if(seen_.begin(), seen_.end(), [&](const CollectiveReading& c) {
          return c.unit == i.unit->unit && c.phase == phase && c.kind == kind;
        }));
  }

  std::int64_t bytes(const Implied& i, Kind kind, Phase phase) const {
    std::int64_t sum = 0;
    for (const CollectiveReading& c : seen_) {
      if (c.unit == i.unit->unit && c.kind == kind && c.phase == phase) sum += c.bytes;
    }
    return sum;
  }

  static std::string name(const Implied& i) {
    return "unit " + std::to_string(i.unit->unit) + " (layers " + std::to_string(i.unit->begin) +
           " to " + std::to_string(i.unit->end - 1) + ")";
  }
  std::optional<Violation> wrong(const Implied& i, std::string_view what, int expected,
                                 int got) const {
    return violation(name(i) + ", " + std::string(what), std::to_string(expected),
                     std::to_string(got));
  }
  std::optional<Violation> violation(std::string_view what, std::string expected,
                                     std::string got) const {
    return Violation{
        kCollectives,
        place_of(step_, microbatch_) + ", " + std::string(run()) + ", " + std::string(what),
        std::move(expected), std::move(got)};
  }

  const Evidence& e_;
  const std::vector<Implied>& implied_;
  const Seen* plain_;
  std::vector<SegmentSpec> segments_ = segments_of(e_.c);
  int step_;
  int microbatch_;
  std::vector<CollectiveReading> seen_;
};

std::string run_of(const Evidence& e, const Record& record) {
  return &record == &e.plain ? "plain run" : "checkpointed run";
}

std::optional<Violation> not_recorded(const Evidence& e, const Record& record) {
  const std::string run = run_of(e, record);
  if (record.units.empty()) {
    return Violation{kCollectives, run + ", units", "recorded", std::string(kNotRecorded)};
  }
  if (record.shards.size() < e.geometry.parameters.size()) {
    return Violation{kCollectives, run + ", parameters of units", "recorded",
                     std::string(kNotRecorded)};
  }
  return std::nullopt;
}

std::optional<Violation> check_collectives(const Evidence& e) {
  for (const Record* record : {&e.plain, &e.checkpointed}) {
    if (auto v = not_recorded(e, *record)) return v;
  }
  const std::vector<Implied> plainly = implied_by(e, e.plain);
  const std::vector<Implied> implied = implied_by(e, e.checkpointed);
  const std::vector<CollectiveReading> seen_plainly = attributed(e, e.plain, plainly);
  const std::vector<CollectiveReading> seen = attributed(e, e.checkpointed, implied);
  for (const Record* record : {&e.plain, &e.checkpointed}) {
    for (const CollectiveReading& c : record->collectives) {
      const ProtocolSpec& p = e.c.protocol;
      if (c.step >= 0 && c.step < p.steps && c.microbatch >= 0 && c.microbatch < p.microbatches)
        continue;
      return Violation{kCollectives, run_of(e, *record) + ", collectives outside of all forwards",
                       "none", place_of(c.step, c.microbatch)};
    }
  }
  return for_each_forward(e.c.protocol, [&](int step, int microbatch) {
    const Seen plain(e, seen_plainly, plainly, nullptr, step, microbatch);
    if (auto v = plain.judge()) return v;
    return Seen(e, seen, implied, &plain, step, microbatch).judge();
  });
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
        "On several devices, each unit of the model is gathered once for its forward and, unless "
        "it stays gathered, once for each backward with all its recomputations, in the order in "
        "which units run. Each backward that synchronizes reduces, exactly once, the gradient of "
        "every parameter that got one. Where layers are split instead, every run of a unit, in a "
        "recomputation as in the forward, gathers what it is given, and gathers or adds up what it "
        "makes, as the split implies, and every backward does so with their gradients. After the "
        "backward nothing is left gathered, and nothing else is sent.",
    .harm =
        "Training waits for parameters that were there already, holds more memory than its "
        "sharding promises, hangs, or trains on gradients of one device.",
    .topic = Topic::recomputation,
    .check = check_collectives,
    .reads = {Observable::collectives},
    .applies = applies_collectives};

}  // namespace rematch
