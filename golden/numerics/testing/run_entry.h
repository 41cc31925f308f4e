#pragma once

#include "golden/numerics/testing/numerics_file.h"

namespace rematch::golden {

/// What the engine gives for an entry, in the places where the entry has PyTorch's.
struct EntryOutcome {
  Tensors outputs;
  NamedTensors gradients;
  NamedTensors after;
};

/// Runs an entry's op, optimizer or model on its inputs. Throws std::runtime_error for an unknown
/// op.
EntryOutcome run_entry(const Entry& entry);

}  // namespace rematch::golden
