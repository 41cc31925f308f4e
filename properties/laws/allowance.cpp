#include "properties/laws/allowance.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "properties/laws/support.h"

namespace rematch {
namespace {

bool counts(const LayerValue& v) {
  return v.step == 0 && v.microbatch == 0 && v.execution == 0 && v.memory != 0;
}

}  // namespace

Allowance::Allowance(const Evidence& e)
    : e_(e),
      segments_(segments_of(e.c)),
      inside_(e.c.layers.size(), false),
      differentiated_(e.c.layers.size(), false),
      keeps_(policy_may_keep(e.c.options)) {
  for (const SegmentSpec& s : segments_) {
    std::fill(inside_.begin() + s.begin, inside_.begin() + s.end, true);
    inputs_ += handed_to(s);
    add(s);
  }
  for (const LiveReading& r : e.plain.held) {
    if (r.event != Event::node || r.layer < 0) continue;
    differentiated_.at(static_cast<std::size_t>(r.layer)) = true;
  }
}

std::int64_t Allowance::saved_plain() const {
  std::int64_t saved = 0;
  for (const ByteReading& r : e_.plain.bytes) {
    if (r.moment == Moment::after_forward && r.step == 0 && r.microbatch == 0) saved = r.saved;
  }
  return saved;
}

std::int64_t Allowance::saved(bool outputs_held) const {
  // Memory by its name, once, whoever saves it. Others may save, too, what segments drop.
  std::map<std::uint64_t, std::int64_t> dropped;
  for (const LayerValue& v : e_.plain.values) {
    if (counts(v) && v.saved && inside(v)) dropped[v.memory] = v.bytes;
  }
  std::set<std::uint64_t> saved_somewhere;
  for (const LayerValue& v : e_.plain.values) {
    if (!counts(v) || !v.saved) continue;
    if (!inside(v)) dropped.erase(v.memory);
    saved_somewhere.insert(v.memory);
  }
  const Unknown unknown = unknown_saves();
  std::int64_t saved = saved_plain() + unknown.unnamed;
  for (const auto& [memory, size] : unknown.memory) {
    dropped.erase(memory);
    if (!saved_somewhere.contains(memory)) saved += size;
  }
  // A loss may save the output that it reads, in memory that a layer of a segment saved before.
  for (const ValueRef& output : e_.geometry.live.back()) {
    if (const LayerValue* const v = made(output)) {
      dropped.erase(v->memory);
    } else {
      saved += size_of_value(output);
    }
    if (!outputs_held && !e_.c.protocol.auxiliary_losses) break;
  }
  for (const auto& [memory, size] : dropped) saved -= size;
  return saved + inputs_ + kept();
}

Allowance::Unknown Allowance::unknown_saves() const {
  Unknown unknown;
  for (std::size_t i = 0; i < inside_.size(); ++i) {
    if (inside_[i] || !e_.forecast.saves_unknown.at(i)) continue;
    std::vector<ValueRef> operands = e_.c.layers[i].from;
    operands.push_back({static_cast<int>(i) - 1, 0});
    for (const ValueRef& operand : operands) {
      if (const LayerValue* const v = made(operand)) {
        unknown.memory[v->memory] = v->bytes;
      } else if (operand.layer >= 0) {
        unknown.unnamed += size_of_value(operand);
      }
    }
    for (const LayerValue& v : e_.plain.values) {
      if (counts(v) && v.layer == static_cast<int>(i)) unknown.memory[v.memory] = v.bytes;
    }
  }
  return unknown;
}

const LayerValue* Allowance::made(const ValueRef& ref) const {
  const auto at =
      std::find_if(e_.plain.values.begin(), e_.plain.values.end(), [&](const LayerValue& v) {
        return counts(v) && !v.saved && v.layer == ref.layer && v.index == ref.output;
      });
  return at == e_.plain.values.end() ? nullptr : &*at;
}

const SegmentSpec* Allowance::segment_around(int layer) const {
  const auto at = std::find_if(segments_.begin(), segments_.end(), [&](const SegmentSpec& s) {
    return s.begin <= layer && layer < s.end;
  });
  return at == segments_.end() ? nullptr : &*at;
}

bool Allowance::inside(const LayerValue& v) const {
  return v.layer >= 0 && inside_.at(static_cast<std::size_t>(v.layer));
}

std::int64_t Allowance::size_of_value(const ValueRef& v) const {
  const bool tokens = v.layer < 0 && vocabulary_of(e_.c.layers) > 0;
  return static_cast<std::int64_t>(size_of(tokens ? DType::int32 : e_.c.dtype)) *
         e_.geometry.shape_of(v, Shape(e_.c.input)).elements();
}

/// Anything that a layer of a segment made may be kept by a policy.
std::int64_t Allowance::kept() const {
  std::int64_t bytes = 0;
  for (const LayerValue& v : e_.plain.values) {
    if (keeps_ && counts(v) && inside(v)) bytes += v.bytes;
  }
  return bytes;
}

void Allowance::add(const SegmentSpec& s) {
  keeps_ = keeps_ || !s.choice.keep.empty();
  for (const SegmentSpec& nested : s.nested) add(nested);
}

bool Allowance::differentiated(const SegmentSpec& s) const {
  return std::all_of(differentiated_.begin() + s.begin, differentiated_.begin() + s.end,
                     [](bool d) { return d; });
}

std::int64_t Allowance::handed_to(const SegmentSpec& s) const {
  std::int64_t bytes = 0;
  for (const ValueRef& v : e_.geometry.live[static_cast<std::size_t>(s.begin)]) {
    bytes += size_of_value(v);
  }
  return bytes;
}

std::int64_t Allowance::around(const SegmentSpec& s) const {
  std::int64_t bytes = 0;
  for (const SegmentSpec& nested : s.nested) bytes += handed_to(nested) + around(nested);
  // The reentrant variant has the outputs of the recomputation until its backward is over.
  for (const ValueRef& v : e_.geometry.live[static_cast<std::size_t>(s.end)]) {
    if (s.choice.variant == Variant::reentrant) bytes += size_of_value(v);
  }
  return bytes;
}

std::int64_t Allowance::beyond_at(int layer, bool shown) const {
  std::int64_t bytes = 0;
  std::vector<bool> before(inside_.size(), false);
  std::vector<bool> may_keep(inside_.size(), false);
  std::vector<bool> all_kept(inside_.size(), false);
  const auto mark = [](std::vector<bool>& layers, const SegmentSpec& s) {
    std::fill(layers.begin() + s.begin, layers.begin() + s.end, true);
  };
  for (const SegmentSpec& s : segments_) {
    // The graph has, until it is gone, whatever no gradient reaches.
    const bool over = s.begin > layer && differentiated(s);
    if (over) continue;
    for (const ValueRef& v : e_.geometry.live[static_cast<std::size_t>(s.begin)]) {
      // The input of the model is held in plain runs, too.
      if (v.layer >= 0) bytes += size_of_value(v);
    }
    mark(may_keep, s);
    if (s.end <= layer) {
      mark(before, s);
    } else {
      bytes += around(s);
      if (!s.nested.empty() || s.begin > layer) mark(all_kept, s);
    }
  }
  std::map<std::uint64_t, std::int64_t> dropped;
  std::map<std::uint64_t, std::int64_t> kept;
  // By the segment whose layers save it: the recomputation of another one does not ask for it.
  std::set<std::pair<const SegmentSpec*, std::uint64_t>> saved;
  for (const LayerValue& v : e_.plain.values) {
    if (!counts(v) || v.layer < 0) continue;
    if (v.saved && inside(v)) saved.emplace(segment_around(v.layer), v.memory);
    if (v.saved && shown && before.at(static_cast<std::size_t>(v.layer)))
      dropped[v.memory] = v.bytes;
  }
  for (const LayerValue& v : e_.plain.values) {
    if (!counts(v) || v.layer < 0) continue;
    const auto index = static_cast<std::size_t>(v.layer);
    const bool there = v.layer <= layer || !differentiated_.at(index);
    if (v.saved && there && !before.at(index)) dropped.erase(v.memory);
    // A recomputation takes each kept result once, and has it until it was read; one that stops
    // early leaves the last ones, which nothing saves.
    const bool left =
        there || all_kept.at(index) || !saved.contains({segment_around(v.layer), v.memory});
    if (keeps_ && may_keep.at(index) && left) kept[v.memory] = v.bytes;
  }
  for (const auto& [memory, size] : dropped) bytes -= size;
  for (const auto& [memory, size] : kept) bytes += size;
  return bytes;
}

std::int64_t Allowance::undropped_at(int layer) const {
  std::map<std::uint64_t, std::int64_t> saved;
  for (const LayerValue& v : e_.plain.values) {
    if (counts(v) && v.saved && inside(v)) saved[v.memory] = v.bytes;
  }
  std::int64_t bytes = beyond_at(layer, false);
  for (const auto& [memory, size] : saved) bytes += size;
  return bytes;
}

}  // namespace rematch
