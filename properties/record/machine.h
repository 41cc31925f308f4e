#pragma once

#include <exception>
#include <string>

namespace rematch {

/// Whether no run is to blame for it: a device was lost, or the machine gave no more memory. There
/// is nothing to judge then.
bool is_of_machine(const std::exception& error);

/// What the error says; where memory ran out, also how much this process may use, and what to do.
std::string describe(const std::exception& error);

/// Before `threads` are started: where a limit on this process's memory leaves no room for what
/// each of them would reserve, all allocate from one arena. Says so; empty where nothing is
/// limited.
std::string fit_memory_limit(int threads);

}  // namespace rematch
