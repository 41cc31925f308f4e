#pragma once

#include <cstdint>

namespace rematch::cuda {

// engine/cpu/concat.h on the device, with its contracts: pointers are the device's, work goes to
// stream().

template <typename T>
void concat2(std::int64_t outer, std::int64_t inner_a, std::int64_t inner_b, const T* a, const T* b,
             T* out);

template <typename T>
void split2(std::int64_t outer, std::int64_t inner_a, std::int64_t inner_b, const T* x, T* a, T* b);

}  // namespace rematch::cuda
