#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "properties/laws/support.h"

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
      if (e.c.layers.at(layer).kind == LayerKind::custom) i.in_part += s.bytes;
    }
    units.push_back(i);
  }
  return units;
}

/// Collectives that a device took part in, for one forward and its backward.
class Seen {
 public:
  Seen(const Evidence& e, const Record& record, const std::vector<Implied>& implied,
       std::string_view run, int step, int microbatch)
      : e_(e), implied_(implied), run_(run), step_(step), microbatch_(microbatch) {
    for (const CollectiveReading& c : record.collectives) {
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
  bool has_backward() const { return e_.forecast.output_flags.at(0); }

  bool reduces(const UnitReading& u) const {
    const bool last = microbatch_ + 1 == e_.c.protocol.microbatches;
    const bool first = step_ == 0 && microbatch_ == 0;
    return has_backward() && (!u.accumulates || last || (u.learns && first));
  }

  std::optional<Violation> judge_gathers(const Implied& i) const {
    const UnitReading& u = *i.unit;
    const int all = u.replicated || i.whole == 0 ? 0 : 1;
    // Where all forwards run first, the first one gathers what stays so, and the first backward,
    // that of the last one, lets go of it.
    const bool waits = e_.c.protocol.forwards_first;
    const bool there = u.stays && waits && microbatch_ > 0;
    const bool stays = u.stays && !(waits && microbatch_ + 1 < e_.c.protocol.microbatches);
    const int forward = count(i, Kind::gather, Phase::forward);
    const int recomputation = count(i, Kind::gather, Phase::recomputation);
    const int backward = count(i, Kind::gather, Phase::backward);
    const int entered = there ? 0 : all;
    if (forward != entered) return wrong(i, "gathers in the forward", entered, forward);
    // A reentrant forward records nothing, so nothing may say that the backward of the unit begins
    // before its recomputation does.
    const int within = u.recomputed && !stays ? all : 0;
    if (recomputation > within)
      return wrong(i, "gathers in the recomputation", within, recomputation);
    const int both = stays ? 0 : all;
    // Nothing here says whether the backward passes through a unit in which nothing trains, or
    // prefetches it; it may gather it once.
    const int got = recomputation + backward;
    const bool may_be_none = i.trained == 0;
    if (got > both || (got < both && !may_be_none)) {
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
    const std::int64_t most = !reduces(u) ? 0 : u.replicated ? i.whole : i.trained;
    const std::int64_t least = most == 0 || u.replicated ? most : most - i.in_part;
    const int got = count(i, Kind::reduce, Phase::backward);
    const std::int64_t sum = bytes(i, Kind::reduce, Phase::backward);
    // Replicated parameters are reduced in buckets, whose number is up to the implementation.
    const bool many = !u.replicated && got != (most > 0 ? 1 : 0);
    if (!many && least <= sum && sum <= most) return std::nullopt;
    return violation("reductions of gradients of " + name(i) + " in the backward",
                     text_of(most > 0 ? 1 : 0, most), text_of(got, sum));
  }

  /// Units are gathered in the order in which they run, and the backward gathers them in reverse,
  /// also where it prefetches. The order of reductions is not judged: a unit whose inputs require
  /// no grad is reduced when all else is over.
  std::optional<Violation> judge_order() const {
    const Implied* forward = nullptr;
    const Implied* backward = nullptr;
    for (const CollectiveReading& c : seen_) {
      if (c.kind != Kind::gather) continue;
      const Implied& next = *std::find_if(implied_.begin(), implied_.end(),
                                          [&](const Implied& i) { return i.unit->unit == c.unit; });
      const Implied*& last = c.phase == Phase::forward ? forward : backward;
      const bool early =
          last != nullptr && (c.phase == Phase::forward ? next.unit->begin < last->unit->begin
                                                        : next.unit->end > last->unit->end);
      if (early) {
        return violation("order of gathers", name(next) + " before " + name(*last),
                         name(*last) + " before " + name(next));
      }
      last = &next;
    }
    return std::nullopt;
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
        place_of(step_, microbatch_) + ", " + std::string(run_) + ", " + std::string(what),
        std::move(expected), std::move(got)};
  }

  const Evidence& e_;
  const std::vector<Implied>& implied_;
  std::string_view run_;
  int step_;
  int microbatch_;
  std::vector<CollectiveReading> seen_;
};

std::optional<Violation> judge_run(const Evidence& e, const Record& record, std::string_view run) {
  if (record.units.empty()) {
    return Violation{kCollectives, std::string(run) + ", units", "recorded",
                     std::string(kNotRecorded)};
  }
  if (record.shards.size() < e.geometry.parameters.size()) {
    return Violation{kCollectives, std::string(run) + ", parameters of units", "recorded",
                     std::string(kNotRecorded)};
  }
  const std::vector<Implied> implied = implied_by(e, record);
  return for_each_forward(e.c.protocol, [&](int step, int microbatch) {
    return Seen(e, record, implied, run, step, microbatch).judge();
  });
}

std::optional<Violation> check_collectives(const Evidence& e) {
  if (auto v = judge_run(e, e.checkpointed, "checkpointed run")) return v;
  return judge_run(e, e.plain, "plain run");
}

// Several backwards of a forward gather and reduce several times.
bool applies_collectives(const Evidence& e) {
  const ProtocolSpec& p = e.c.protocol;
  return p.backwards == 1 && !p.partial && !p.auxiliary_losses;
}

}  // namespace

extern const Law collectives_law;
const Law collectives_law{
    .name = kCollectives,
    .statement =
        "On several devices, each unit of the model is gathered once for its forward and, unless "
        "it stays gathered, once for its backward with all recomputations, in the order in which "
        "units run. Each backward that synchronizes reduces, exactly once, the gradient of every "
        "parameter that got one. After the backward nothing is left gathered, and nothing else is "
        "sent.",
    .harm =
        "Training waits for parameters that were there already, holds more memory than its "
        "sharding promises, hangs, or trains on gradients of one device.",
    .promise = Promise::recomputation,
    .check = check_collectives,
    .reads = {Observable::collectives},
    .applies = applies_collectives};

}  // namespace rematch
