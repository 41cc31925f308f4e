#pragma once

#include "engine/kernels/conv2d.h"

namespace rematch::cpu::testing {

// n, c, h, w, out_c, kh, kw, strides, paddings: single pixels, odd extents, strides that skip the
// last rows, paddings as large as the kernel, 1 x 1, oblong kernels, and shapes of real networks.
inline constexpr Conv2dShape kConvolutions[] = {
    {2, 2, 8, 8, 4, 3, 3, 1, 1, 1, 1},     {3, 8, 8, 8, 8, 3, 3, 1, 1, 1, 1},
    {2, 3, 7, 9, 5, 3, 2, 2, 3, 1, 0},     {2, 3, 7, 9, 5, 1, 1, 2, 2, 0, 0},
    {3, 3, 11, 5, 7, 4, 5, 3, 2, 2, 2},    {2, 4, 6, 6, 3, 1, 1, 1, 1, 0, 0},
    {1, 2, 5, 5, 3, 2, 2, 3, 3, 1, 1},     {1, 1, 1, 1, 1, 3, 3, 1, 1, 1, 1},
    {2, 3, 8, 8, 9, 3, 3, 2, 2, 1, 1},     {1, 2, 30, 31, 3, 3, 3, 1, 1, 1, 1},
    {40, 8, 15, 16, 7, 2, 2, 1, 1, 0, 0},  {1, 1, 6, 6, 1, 2, 2, 1, 1, 3, 3},
    {5, 4, 3, 3, 6, 3, 3, 1, 1, 0, 0},     {16, 16, 16, 16, 32, 3, 3, 1, 1, 1, 1},
    {32, 3, 32, 32, 16, 5, 5, 1, 1, 2, 2}, {8, 32, 14, 14, 64, 3, 3, 2, 2, 1, 1},
    {64, 1, 28, 28, 8, 3, 3, 1, 1, 1, 1},  {2, 3, 17, 32, 70, 3, 3, 1, 1, 1, 1},
    {2, 5, 6, 16, 4, 3, 1, 1, 1, 1, 0},    {3, 2, 3, 150, 3, 1, 4, 1, 2, 0, 2},
};

}  // namespace rematch::cpu::testing
