#pragma once

#include <memory>

#include "properties/hunt/hunt_options.h"
#include "properties/hunt/worker.h"

namespace rematch {

/// A worker in the calling thread.
std::unique_ptr<Worker> local_worker(const HuntOptions& options);

}  // namespace rematch
