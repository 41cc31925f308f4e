#pragma once

#include <cstdint>

namespace rematch::cuda {

// engine/cpu/embedding.h on the device: pointers are the device's, work goes to stream(), and every
// result has the CPU's bits. A token that has no row gets NaN, and adds to no sum.

/// One launch.
template <typename T>
void rows_of_tokens(std::int64_t n, std::int64_t rows, std::int64_t features,
                    const std::int32_t* tokens, const T* weight, T* y);

/// One launch, of a block for each row, which looks at all tokens: for small vocabularies.
template <typename T>
void sum_rows_of_tokens(std::int64_t n, std::int64_t rows, std::int64_t features,
                        const std::int32_t* tokens, const T* gy, T* gw);

}  // namespace rematch::cuda
