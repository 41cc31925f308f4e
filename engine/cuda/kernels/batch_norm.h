#pragma once

#include <cstdint>

namespace rematch::cuda {

// engine/cpu/batch_norm.h on the device, with its contracts: pointers are the device's, work goes
// to stream().
//
// All sums take the CPU's order, and all results have the CPU's bits (NaN payloads apart). With
// s > 1 that is LaneSum with one run per image: a channel's sum is within
// ((1024 / s + 66 + 4) u_T + ceil(n s / 1024) u_64) * sum |terms| of the exact one
// (engine/math/lane_order.h). With s = 1 the terms are added in double, in chunks of 128 whose sums
// are added in ascending order.

template <typename T>
void batch_norm_train(std::int64_t n, std::int64_t c, std::int64_t s, const T* x, const T* w,
                      const T* b, T eps, T* y, T* mean, T* invstd, T* running_mean, T* running_var,
                      T momentum);

template <typename T>
void batch_norm_eval(std::int64_t n, std::int64_t c, std::int64_t s, const T* x, const T* w,
                     const T* b, const T* running_mean, const T* running_var, T eps, T* y,
                     T* mean_out, T* invstd_out);

template <typename T>
void batch_norm_backward(std::int64_t n, std::int64_t c, std::int64_t s, const T* gy, const T* x,
                         const T* mean, const T* invstd, const T* w, bool train, T* gx, T* gw,
                         T* gb);

}  // namespace rematch::cuda
