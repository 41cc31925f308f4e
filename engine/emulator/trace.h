#pragma once

// Kernel launches written to files, for programs that run the same kernels in another way
// (ci/maintain/ptx): REMATCH_EMULATOR_TRACE=DIR names an empty folder. A file is one launch: a
// line of JSON, which says what was launched, and the bytes of the device's blocks that it could
// reach, before and after. Not every launch is written, and launches.json says how many were.

#include <array>
#include <cstddef>
#include <cstring>
#include <functional>
#include <type_traits>
#include <vector>

#include "engine/emulator/memory.h"

namespace rematch::emulator {

bool is_traced();

/// A kernel's argument as the launch gives it; the kernel's parameter may be of another type.
struct Argument {
  /// 's' signed, 'u' unsigned, 'f' floating, 'b' anything else.
  char kind = 'b';
  std::vector<std::byte> bytes;
};

template <typename T>
Argument argument(const T& value) {
  Argument a;
  if constexpr (std::is_floating_point_v<T>) a.kind = 'f';
  if constexpr (std::is_integral_v<T>) a.kind = std::is_signed_v<T> ? 's' : 'u';
  a.bytes.resize(sizeof value);
  if constexpr (std::is_null_pointer_v<T>) return a;
  std::memcpy(a.bytes.data(), &value, sizeof value);
  return a;
}

template <typename... T>
std::vector<Argument> arguments_of(const T&... values) {
  return {argument(values)...};
}

struct Launch {
  unsigned blocks;
  unsigned threads;
  unsigned shared;
  std::vector<Argument> arguments;
};

/// Runs a launch, whose name is that of the kernel whose body it enters, and writes it.
void run_traced(const Launch& launch, const std::function<void()>& body,
                const std::function<void()>& run);

/// Set while a body is entered for its name alone.
inline thread_local constinit bool names_kernel = false;
struct KernelName {
  const char* mangled;
  /// The source that the build rewrote.
  const char* source;
};

/// The beginning of each kernel, as the build rewrites it. A type that is local to it has a name
/// that contains the kernel's.
#define REMATCH_EMULATED_KERNEL                       \
  struct Here {};                                     \
  if (::rematch::emulator::names_kernel) [[unlikely]] \
    throw ::rematch::emulator::KernelName{typeid(Here).name(), __BASE_FILE__};

}  // namespace rematch::emulator
