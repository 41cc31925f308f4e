#pragma once

#include <cstdint>

namespace rematch::cpu {

/// y[n,m] = x[n,k] w[m,k]^T + b[m]; `b` may be null. Each element is one fma chain over ascending k
/// that begins with its bias.
template <typename T>
void linear_forward(const T* x, const T* w, const T* b, T* y, std::int64_t n, std::int64_t k,
                    std::int64_t m);

/// gx[n,k] = gy[n,m] w[m,k], each element one fma chain over ascending m.
template <typename T>
void linear_grad_input(const T* gy, const T* w, T* gx, std::int64_t n, std::int64_t k,
                       std::int64_t m);

/// gw[m,k] = gy[n,m]^T x[n,k], each element one fma chain over ascending n.
template <typename T>
void linear_grad_weight(const T* gy, const T* x, T* gw, std::int64_t n, std::int64_t k,
                        std::int64_t m);

/// gb[m] = the column sums of gy[n,m], as column_sums (reduce.h) in T.
template <typename T>
void sum_rows(const T* gy, T* gb, std::int64_t n, std::int64_t m);

}  // namespace rematch::cpu
