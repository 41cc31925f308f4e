#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "properties/hunt/finding.h"
#include "properties/hunt/hunt_options.h"

namespace rematch {

/// Puts those together that shrink to one model under one law, in the order of laws, the most
/// frequent first.
std::vector<Finding> group(std::vector<Finding> all);

/// Shrinks each of the cases, by as many workers as the hunt has, and groups them. Calls
/// `progress(done)` now and then, from this thread. A case that could not be shrunk because
/// something failed stands as it was found, and `error` says what failed.
std::vector<Finding> shrink_all(const HuntOptions& options,
                                const std::vector<ViolatingCase>& violating,
                                const std::function<void(std::size_t done)>& progress,
                                std::string& error);

}  // namespace rematch
