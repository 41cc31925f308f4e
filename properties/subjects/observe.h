#pragma once

#include "engine/tensor/tensor.h"
#include "properties/record/record.h"

namespace rematch {

/// The quantity that is observed, and when.
struct ObservationKey {
  Quantity quantity;
  int step;
  int microbatch;
  int index;
};

/// Adds `t`, which may be undefined, to the record: its values are those of now. For a tensor on a
/// device they are there after MemoryResource::finish_reads(), until when the record must live.
void observe(const ObservationKey& key, const Tensor& t, Record& record);

}  // namespace rematch
