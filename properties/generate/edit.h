#pragma once

#include <functional>
#include <vector>

#include "properties/case/case.h"

namespace rematch {

/// Edits of a valid case from which smaller cases are made.

/// The case without layers [begin, end): references, ties and the plan are re-indexed. A layer that
/// read a removed value reads the value that enters the range; the first remaining user of a
/// removed weight becomes its owner; segments that become empty go. The range is not the whole
/// model. The result may need repair().
Case without_layers(const Case& c, int begin, int end);

/// Mends what an edit broke, only ever towards less: second operands that no longer fit become the
/// first operand again, ties that no longer fit are cut, windows and splits shrink to what is
/// there, in-place layers that may not be become ordinary. Not everything can be repaired:
/// validate() has the last word.
void repair(Case& c);

/// Takes away the further inputs that no layer reads, and numbers the others anew.
void drop_unread_inputs(Case& c);

/// Segments of all levels, a parent before those nested in it.
int count_segments(const std::vector<SegmentSpec>& segments);
/// Calls edit(siblings, position) for segment number `index` in that order.
void edit_segment(std::vector<SegmentSpec>& segments, int index,
                  const std::function<void(std::vector<SegmentSpec>&, std::size_t)>& edit);

}  // namespace rematch
