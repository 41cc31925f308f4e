#pragma once

#include <cstdint>

namespace rematch::cpu {

/// y[i] = weight[tokens[i]], rows of `features` elements; n tokens, each in [0, rows).
template <typename T>
void rows_of_tokens(std::int64_t n, std::int64_t rows, std::int64_t features,
                    const std::int32_t* tokens, const T* weight, T* y);

/// gw[t] = the sum of gy[i] over all i with tokens[i] == t, in their order; 0 for none.
template <typename T>
void sum_rows_of_tokens(std::int64_t n, std::int64_t rows, std::int64_t features,
                        const std::int32_t* tokens, const T* gy, T* gw);

}  // namespace rematch::cpu
