#pragma once

#include <exception>
#include <string>

namespace rematch {

/// Whether the machine is to blame rather than a run: a device was lost, or memory ran out. There
/// is nothing to judge then.
bool is_of_machine(const std::exception& error);

/// The error's text; where memory ran out, also how much this process may use, and what to do.
std::string describe(const std::exception& error);

/// To be called before `threads` are started. If a limit on this process's memory leaves no room
/// for an arena for each, makes them share one, and returns a sentence that says so; otherwise
/// empty.
std::string fit_memory_limit(int threads);

}  // namespace rematch
