#pragma once

#include <cstdint>

namespace rematch::cpu {

/// out[outer, inner_a + inner_b] = a[inner_a], the same each time, beside b[outer, inner_b].
template <typename T>
void prepend(std::int64_t outer, std::int64_t inner_a, std::int64_t inner_b, const T* a, const T* b,
             T* out);

}  // namespace rematch::cpu
