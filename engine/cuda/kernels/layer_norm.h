#pragma once

#include <cstdint>

namespace rematch::cuda {

// engine/cpu/layer_norm.h on the device, with its contracts: pointers are the device's, work goes
// to stream(). Formulas and the order of sums are the CPU's, so all results have its bits (NaN
// payloads apart). A sum along a row is within ((64 + 4) u_T + ceil(cols / 1024) u_64) * sum
// |terms| of the exact one; gw and gb are within (min(rows, 128) u_T + ceil(rows / 128) u_64) * sum
// |terms| (gw's terms carry 3 roundings each).

template <typename T>
void layer_norm_forward(std::int64_t rows, std::int64_t cols, const T* x, const T* w, const T* b,
                        T eps, T* y, T* mean, T* rstd);

/// With xhat = (x - mean) * rstd and h = gy * w: gx = rstd * (h - mean(h) - xhat * mean(h * xhat)),
/// gw[cols] = sum over rows of gy * xhat, gb[cols] = sum over rows of gy. `w`, gx, gw, gb may be
/// null. With a null `mean`, as forward was given one, xhat = x * rstd and
/// gx = rstd * (h - xhat * mean(h * xhat)).
template <typename T>
void layer_norm_backward(std::int64_t rows, std::int64_t cols, const T* gy, const T* x,
                         const T* mean, const T* rstd, const T* w, T* gx, T* gw, T* gb);

}  // namespace rematch::cuda
