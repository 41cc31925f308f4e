#pragma once

#include <array>
#include <concepts>
#include <type_traits>

#include "properties/record/record.h"

namespace rematch::entries {

/// The fields of a record's entries, by the names that they have in JSON: fields(visit, entry)
/// calls visit(name, value) for each. Whoever reads, writes, hashes or describes records walks
/// them.

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

// REMATCH_EACH(DO, a, b, ...) is DO(a) DO(b) ...
#define REMATCH_AGAIN() REMATCH_EACH_OF
#define REMATCH_PARENTHESES ()
#define REMATCH_EACH_OF(DO, first, ...) \
  DO(first) __VA_OPT__(REMATCH_AGAIN REMATCH_PARENTHESES(DO, __VA_ARGS__))
#define REMATCH_SCAN(...) REMATCH_SCAN4(REMATCH_SCAN4(__VA_ARGS__))
#define REMATCH_SCAN4(...) REMATCH_SCAN2(REMATCH_SCAN2(REMATCH_SCAN2(REMATCH_SCAN2(__VA_ARGS__))))
#define REMATCH_SCAN2(...) REMATCH_SCAN1(REMATCH_SCAN1(__VA_ARGS__))
#define REMATCH_SCAN1(...) __VA_ARGS__
#define REMATCH_EACH(DO, ...) REMATCH_SCAN(REMATCH_EACH_OF(DO, __VA_ARGS__))
// Several entries are visited side by side.
#define REMATCH_VISIT(name) v(#name, e.name...);
#define REMATCH_WALK(walk, S, ...)                                                     \
  template <class V, class... E>                                                       \
  requires(std::same_as<std::remove_const_t<E>, S> && ...) void walk(V&& v, E&... e) { \
    REMATCH_EACH(REMATCH_VISIT, __VA_ARGS__)                                           \
  }
#define REMATCH_FIELDS(S, ...) REMATCH_WALK(fields, S, __VA_ARGS__)

REMATCH_FIELDS(Draw, step, microbatch, layer, execution, stream, offset, elements, hash)
REMATCH_FIELDS(LayerValue, step, microbatch, layer, execution, saved, index, op, hash, memory,
               bytes)
REMATCH_FIELDS(StreamReading, moment, step, microbatch, stream, seed, offset)
REMATCH_FIELDS(ByteReading, moment, step, microbatch, saved, temporaries, retained, offloaded)
REMATCH_FIELDS(LiveReading, event, step, microbatch, layer, execution, entered, live, peak,
               offloaded)
REMATCH_FIELDS(ExecutionCount, step, microbatch, layer, count, computed)
REMATCH_FIELDS(HookCount, step, microbatch, parameter, count)
REMATCH_FIELDS(GradFlag, step, microbatch, layer, output, requires_grad)
REMATCH_FIELDS(TimelinePoint, live, saved, layer, phase, execution, block)
REMATCH_FIELDS(Agreement, layer, what, element, host, device, bound, holds)
REMATCH_FIELDS(TrialReading, failed, message, left_bytes, left_behind)
REMATCH_FIELDS(PromiseReading, name, broken)
REMATCH_FIELDS(UnitReading, unit, begin, end, replicated, split)
REMATCH_FIELDS(CollectiveReading, step, microbatch, kind, phase, unit, bytes)
REMATCH_FIELDS(RecordedError, kind, message)
/// All fields except the array.
REMATCH_FIELDS(Observation, quantity, step, microbatch, index, present, requires_grad, dtype)
/// The lists of a record, except the observations.
REMATCH_WALK(lists, Record, draws, values, streams, bytes, live, held, executions, hooks,
             grad_flags, promises, units, collectives, timeline, agreements)
REMATCH_WALK(scalars, Record, peak_bytes, reserved_bytes)

#undef REMATCH_FIELDS
#undef REMATCH_WALK
#undef REMATCH_VISIT

}  // namespace rematch::entries
