#pragma once

#include <cstdint>

namespace rematch::cuda {

// engine/cpu/delayed_scaling.h on the device: pointers are the device's, work goes to stream(), and
// every result has the CPU's bits.

/// One launch.
template <typename T>
void divide_by(std::int64_t n, const T* x, const T* scale, T* y);

/// One launch, of one block.
template <typename T>
void average_magnitude(std::int64_t n, const T* x, T* average);

/// One launch.
template <typename T>
void round_to_float8(std::int64_t n, const T* x, const T* history, T* y);

/// One launch, of one block.
template <typename T>
void remember_magnitude(std::int64_t n, const T* x, T* history);

}  // namespace rematch::cuda
