#pragma once

#include <cstdint>

#include "engine/kernels/declare.h"

namespace rematch {

// Each is one launch on the device, where a token that has no row gets NaN and adds to no sum.
// sum_rows_of_tokens takes a block for each row, which looks at all tokens: for small vocabularies.

/// y[i] = weight[tokens[i]], rows of `features` elements; n tokens, each in [0, rows).
REMATCH_DECLARE(void rows_of_tokens(std::int64_t n, std::int64_t rows, std::int64_t features,
                                    const std::int32_t* tokens, const T* weight, T* y));

/// gw[t] = the sum of gy[i] over all i with tokens[i] == t, in their order; 0 for none.
REMATCH_DECLARE(void sum_rows_of_tokens(std::int64_t n, std::int64_t rows, std::int64_t features,
                                        const std::int32_t* tokens, const T* gy, T* gw));

#define REMATCH_EMBEDDING_KERNELS(K) \
  K(rows_of_tokens);                 \
  K(sum_rows_of_tokens)

}  // namespace rematch
