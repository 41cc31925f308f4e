#pragma once

#include <cuda_runtime_api.h>

#include <string>

namespace rematch::cuda {

/// Whether this machine has an NVIDIA driver and a device for it. In a separate file, because the
/// emulated device has its own answer.
bool has_driver();

/// Whether `status`, what CUDA says when it is asked for its devices, means that there is none; any
/// other error means that there may be one, which cannot be used.
bool means_no_device(cudaError_t status, bool with_driver);

/// Why the devices of this machine cannot be used: the call, the error, and what to do. Empty where
/// there is a device that can be used, and where there plainly is none.
std::string device_problem();

/// The text of an error: its name, number and meaning, and what to do.
std::string describe(cudaError_t status);

/// "13.0", from CUDA's 13000.
std::string version_text(int version);

}  // namespace rematch::cuda
