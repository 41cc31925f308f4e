#pragma once

#include <cstdint>

#include "engine/kernels/declare.h"

namespace rematch {

// The device runs products of at most direct_products() multiply-adds (cuda/runtime/device.h) on
// the engine's own kernel (cuda/kernels/product.h), with the CPU's bits, and larger ones on
// cuBLASLt (cuda/kernels/matmul.h says how an algorithm is chosen, and that a product has the same
// bits every time). There an element is a sum of products in some order: with `terms` of them it is
// within terms * u_T * sum |term| of the exact one to first order, a bias being one more term.
// Under Precision::tf32 a float32 product of cuBLASLt carries 2^-10 more, because its operands are
// rounded. The products of bfloat16 operands, which only the device takes, are exact in float32,
// sums are float32's, and results are rounded once; so up to that rounding the same holds.

/// y[n,m] = x[n,k] w[m,k]^T + b[m]; `b` may be null. Each element is one fma chain over ascending k
/// that begins with its bias.
REMATCH_DECLARE(void linear_forward(const T* x, const T* w, const T* b, T* y, std::int64_t n,
                                    std::int64_t k, std::int64_t m));

/// gx[n,k] = gy[n,m] w[m,k], each element one fma chain over ascending m.
REMATCH_DECLARE(void linear_grad_input(const T* gy, const T* w, T* gx, std::int64_t n,
                                       std::int64_t k, std::int64_t m));

/// gw[m,k] = gy[n,m]^T x[n,k], each element one fma chain over ascending n.
REMATCH_DECLARE(void linear_grad_weight(const T* gy, const T* x, T* gw, std::int64_t n,
                                        std::int64_t k, std::int64_t m));

/// gb[m] = the column sums of gy[n,m], as column_sums (engine/cpu/reduce.h) in T: within chunks of
/// 128 rows, and in double across. On the device within (min(n, 128) u_T + ceil(n / 128) u_64) *
/// sum |gy| of the exact sum.
REMATCH_DECLARE(void sum_rows(const T* gy, T* gb, std::int64_t n, std::int64_t m));

#define REMATCH_LINEAR_KERNELS(K) \
  K(linear_forward);              \
  K(linear_grad_input);           \
  K(linear_grad_weight)

}  // namespace rematch
