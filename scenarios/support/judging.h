#pragma once

// Helpers of stories about cases and subjects.

#include <initializer_list>
#include <string_view>

#include <vector>

#include "properties/case/json.h"
#include "properties/faults/fault.h"
#include "properties/subjects/engine_subject.h"
#include "scenarios/report/scenario.h"

namespace rematch::scenarios {

/// The record of one run of `c` on `subject`: under its plan, or plain.
Record record_of(const Case& c, Subject& subject, bool checkpointed = true);
/// The same of the engine.
Record record_of(const Case& c, bool checkpointed);

/// The elements of an observation, of which an absent one has none.
std::vector<double> values_of(const Record& record, const Observation& o);
/// Those of every observation of `quantity`, in the order in which they were made.
std::vector<double> values_of(const Record& record, Quantity quantity);

/// Whether all that was observed of these quantities is the same in both.
bool are_same(const Record& one, const Record& other, std::initializer_list<Quantity> quantities);

/// Bytes that the graph held after the last forward, or after the last backward that retained it.
std::int64_t saved_bytes(const Record& record, Moment moment);

/// Adds a segment to the plan, which lists segments.
void add_segment(Case& c, int begin, int end, Variant variant);

/// Tells what the case is, in words.
void tell_case(const Case& c, Report& report);

/// Claims that `law` is broken when `wrong` runs `c`, and that the engine keeps every law on it.
/// The sentence begins with `who`, which names what `wrong` does, and says where the law was
/// broken, what was expected there and what came.
void claim_law_finds(const Case& c, Subject& wrong, std::string_view who, std::string_view law,
                     Report& report);
/// The same for a fault of the catalogue.
void claim_law_finds(const Case& c, std::string_view fault, std::string_view who,
                     std::string_view law, Report& report);

}  // namespace rematch::scenarios
