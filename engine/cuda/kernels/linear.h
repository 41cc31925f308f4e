#pragma once

#include <cstdint>

namespace rematch::cuda {

// engine/cpu/linear.h on the device: pointers are the device's, work goes to stream().
//
// Products of at most direct_products() multiply-adds (cuda/runtime/device.h) run on the engine's
// own kernel (product.h) and have the CPU's bits; larger ones on cuBLASLt.
// matmul.h says how an algorithm is chosen, and that a product has the same bits every
// time. There an element is a sum of products in some order: with `terms` of them it is within
// terms * u_T * sum |term| of the exact one to first order, a bias being one more term. Under
// Precision::tf32 a float32 product of cuBLASLt carries 2^-10 more, for its operands are rounded.
//
// Of bfloat16 operands products are exact in float32, sums are float32's, and results are rounded
// once; so up to that rounding the same holds.
//
// The sum of a bias's gradient is sum_rows (sum_rows.h).

/// y[n,m] = x[n,k] w[m,k]^T + b[m]; `b` may be null.
template <typename T>
void linear_forward(const T* x, const T* w, const T* b, T* y, std::int64_t n, std::int64_t k,
                    std::int64_t m);

/// gx[n,k] = gy[n,m] w[m,k].
template <typename T>
void linear_grad_input(const T* gy, const T* w, T* gx, std::int64_t n, std::int64_t k,
                       std::int64_t m);

/// gw[m,k] = gy[n,m]^T x[n,k].
template <typename T>
void linear_grad_weight(const T* gy, const T* x, T* gw, std::int64_t n, std::int64_t k,
                        std::int64_t m);

}  // namespace rematch::cuda
