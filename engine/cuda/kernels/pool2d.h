#pragma once

#include <cstdint>

#include "engine/cpu/pool2d.h"

namespace rematch::cuda {

// engine/cpu/pool2d.h on the device, with its contracts: pointers are the device's, work goes to
// stream(). Each output meets its window, and each input its windows, in the CPU's row-major order,
// so the bits are the CPU's (NaN payloads apart): backward gathers, one thread an input, and adds
// nothing atomically. A sum over k terms is within k u_T * sum |terms| of the exact one.

using cpu::Pool2dShape;

template <typename T>
void max_pool2d_forward(const Pool2dShape& shape, const T* x, T* y, std::int32_t* indices);

/// gx[n,c,h,w]: gy added at the recorded positions in row-major output order; fully overwritten.
/// `indices` must be those of forward: a position is looked for in the windows that contain it.
template <typename T>
void max_pool2d_backward(const Pool2dShape& shape, const T* gy, const std::int32_t* indices, T* gx);

template <typename T>
void avg_pool2d_forward(const Pool2dShape& shape, const T* x, T* y);

template <typename T>
void avg_pool2d_backward(const Pool2dShape& shape, const T* gy, T* gx);

}  // namespace rematch::cuda
