#pragma once

#include <cstdint>

#include "engine/cuda/runtime/device.h"
#include "engine/tensor/tensor.h"

namespace rematch {

/// Whether kernels take `x` as it is for a sum of `products` products: bfloat16 on a device, where
/// libraries multiply it many times faster than float32. Other kernels know no bfloat16.
inline bool multiplies_as_it_is(const Tensor& x, std::int64_t products) {
  return x.dtype() == DType::bfloat16 && x.device() == Device::cuda &&
         products > cuda::direct_products();
}

}  // namespace rematch
