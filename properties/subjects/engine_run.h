#pragma once

#include <memory>

#include "engine/memory/ledger.h"
#include "properties/record/subject.h"
#include "properties/subjects/engine_parts.h"

namespace rematch {

/// One run of a case on the engine, in the ambient state that is set: the protocol, step by step,
/// with everything observable written down; under a displacement the losses of the first step
/// alone. `host`: where offloaded tensors go; nullptr: there is no offload. Throws what the engine
/// throws; the record then has what was seen before.
void run_protocol(const Case& c, const Geometry& geometry, const RunRequest& request,
                  const EngineParts& parts, const std::shared_ptr<Ledger>& host, Record& record);

}  // namespace rematch
