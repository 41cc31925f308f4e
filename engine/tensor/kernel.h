#pragma once

#include <stdexcept>
#include <string>

#include "engine/ambient/ambient.h"
#include "engine/tensor/tensor.h"

namespace rematch {

// Every kernel exists once for each backend (engine/kernels/declare.h). An op names the kernel and
// a tensor it works on; the tensor's device chooses the backend.

/// The device of `t`, which must be the one that new tensors are made on. Throws
/// std::invalid_argument.
inline Device kernel_device(const Tensor& t) {
  const Device device = t.device();
  const Device ambient_device = ambient().ledger->device();
  if (device != ambient_device) {
    throw std::invalid_argument("[device] a tensor on " + std::string(to_string(ambient_device)) +
                                " expected, got one on " + std::string(to_string(device)) +
                                "; copy it, or make the ambient ledger one of its device");
  }
  return device;
}

#ifdef REMATCH_HAS_CUDA

/// Calls cpu::kernel(...) or cuda::kernel(...).
#define REMATCH_KERNEL(tensor, kernel, ...) \
  (kernel_device(tensor) == Device::cuda ? cuda::kernel(__VA_ARGS__) : cpu::kernel(__VA_ARGS__))

/// Calls cuda::kernel(...), for a tensor on the device, where the CPU has no such kernel.
#define REMATCH_DEVICE_KERNEL(tensor, kernel, ...) \
  (static_cast<void>(kernel_device(tensor)), cuda::kernel(__VA_ARGS__))

#else

#define REMATCH_DEVICE_KERNEL(tensor, kernel, ...) (static_cast<void>(kernel_device(tensor)))
#define REMATCH_KERNEL(tensor, kernel, ...) \
  (static_cast<void>(kernel_device(tensor)), cpu::kernel(__VA_ARGS__))

#endif

}  // namespace rematch
