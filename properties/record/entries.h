#pragma once

#include <array>
#include <string_view>

#include "properties/record/record.h"

namespace rematch::entries {

/// The names and fields of a record's entries, for reader and writer: calls a visitor with the name
/// and value of each field.

/// The names of enum values, in their order.
inline constexpr std::array kQuantities{
    "output",    "loss",   "input_gradient", "parameter_gradient",
    "parameter", "buffer", "reevaluation"};
inline constexpr std::array kMoments{"after_forward", "after_backward", "after_step"};
inline constexpr std::array kEvents{"layer",    "node",  "gradient", "forward",
                                    "backward", "graph", "step"};
inline constexpr std::array kCollectiveKinds{"gather", "reduce", "other", "kept", "ran", "stopped"};
inline constexpr std::array kCollectivePhases{"forward", "recomputation", "backward"};
inline constexpr std::array kDTypes{"float32", "float64", "int32", "uint8", "bfloat16"};
inline constexpr const auto& names_of(Quantity) { return kQuantities; }
inline constexpr const auto& names_of(Moment) { return kMoments; }
inline constexpr const auto& names_of(Event) { return kEvents; }
inline constexpr const auto& names_of(CollectiveKind) { return kCollectiveKinds; }
inline constexpr const auto& names_of(CollectivePhase) { return kCollectivePhases; }
inline constexpr const auto& names_of(DType) { return kDTypes; }

template <class V, class E>
void place(V& v, E& e) {
  v("step", e.step);
  v("microbatch", e.microbatch);
}
template <class V>
void fields(V& v, Draw& d) {
  place(v, d);
  v("layer", d.layer);
  v("execution", d.execution);
  v("stream", d.stream);
  v("offset", d.offset);
  v("elements", d.elements);
  v("hash", d.hash);
}
template <class V>
void fields(V& v, LayerValue& l) {
  place(v, l);
  v("layer", l.layer);
  v("execution", l.execution);
  v("saved", l.saved);
  v("index", l.index);
  v("op", l.op);
  v("hash", l.hash);
  v("memory", l.memory);
  v("bytes", l.bytes);
}
template <class V>
void fields(V& v, StreamReading& s) {
  v("moment", s.moment);
  place(v, s);
  v("stream", s.stream);
  v("seed", s.seed);
  v("offset", s.offset);
}
template <class V>
void fields(V& v, ByteReading& b) {
  v("moment", b.moment);
  place(v, b);
  v("saved", b.saved);
  v("temporaries", b.temporaries);
  v("retained", b.retained);
  v("offloaded", b.offloaded);
}
template <class V>
void fields(V& v, LiveReading& l) {
  v("event", l.event);
  place(v, l);
  v("layer", l.layer);
  v("execution", l.execution);
  v("entered", l.entered);
  v("live", l.live);
  v("peak", l.peak);
  v("offloaded", l.offloaded);
}
template <class V>
void fields(V& v, ExecutionCount& e) {
  place(v, e);
  v("layer", e.layer);
  v("count", e.count);
  v("computed", e.computed);
}
template <class V>
void fields(V& v, HookCount& h) {
  place(v, h);
  v("parameter", h.parameter);
  v("count", h.count);
}
template <class V>
void fields(V& v, GradFlag& g) {
  place(v, g);
  v("layer", g.layer);
  v("output", g.output);
  v("requires_grad", g.requires_grad);
}
template <class V>
void fields(V& v, TimelinePoint& t) {
  v("live", t.live);
  v("saved", t.saved);
  v("layer", t.layer);
  v("phase", t.phase);
  v("execution", t.execution);
  v("block", t.block);
}
template <class V>
void fields(V& v, Agreement& a) {
  v("layer", a.layer);
  v("what", a.what);
  v("element", a.element);
  v("host", a.host);
  v("device", a.device);
  v("bound", a.bound);
  v("holds", a.holds);
}
template <class V>
void fields(V& v, TrialReading& t) {
  v("failed", t.failed);
  v("message", t.message);
  v("left_bytes", t.left_bytes);
  v("left_behind", t.left_behind);
}
template <class V>
void fields(V& v, PromiseReading& p) {
  v("name", p.name);
  v("broken", p.broken);
}
template <class V>
void fields(V& v, UnitReading& u) {
  v("unit", u.unit);
  v("begin", u.begin);
  v("end", u.end);
  v("replicated", u.replicated);
  v("stays", u.stays);
  v("recomputed", u.recomputed);
  v("accumulates", u.accumulates);
  v("learns", u.learns);
  v("gathers", u.gathers);
  v("reduces", u.reduces);
  v("gathers_operand", u.gathers_operand);
  v("gathers_gradient", u.gathers_gradient);
  v("gathers_back", u.gathers_back);
  v("reduces_back", u.reduces_back);
}
template <class V>
void fields(V& v, ShardReading& s) {
  v("unit", s.unit);
  v("parameter", s.parameter);
  v("bytes", s.bytes);
  v("added", s.added);
}
template <class V>
void fields(V& v, CollectiveReading& c) {
  place(v, c);
  v("kind", c.kind);
  v("phase", c.phase);
  v("unit", c.unit);
  v("bytes", c.bytes);
}
template <class V>
void fields(V& v, RecordedError& e) {
  v("kind", e.kind);
  v("message", e.message);
}
/// All fields except the array.
template <class V>
void fields(V& v, Observation& o) {
  v("quantity", o.quantity);
  place(v, o);
  v("index", o.index);
  v("present", o.present);
  v("requires_grad", o.requires_grad);
  v("dtype", o.dtype);
}
/// The lists of a record, except the observations.
template <class V, class R>
void lists(V& v, R& r) {
  v("draws", r.draws);
  v("values", r.values);
  v("streams", r.streams);
  v("bytes", r.bytes);
  v("live", r.live);
  v("held", r.held);
  v("executions", r.executions);
  v("hooks", r.hooks);
  v("grad_flags", r.grad_flags);
  v("promises", r.promises);
  v("units", r.units);
  v("shards", r.shards);
  v("collectives", r.collectives);
  v("timeline", r.timeline);
  v("agreements", r.agreements);
}
template <class V, class R>
void scalars(V& v, R& r) {
  v("peak_bytes", r.peak_bytes);
  v("reserved_bytes", r.reserved_bytes);
}

}  // namespace rematch::entries
