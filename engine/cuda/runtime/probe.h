#pragma once

#include <cuda_runtime_api.h>

namespace rematch::cuda {

/// Launches a kernel that does nothing: fails where this build has no code that the device and its
/// driver can run.
cudaError_t try_kernel();

}  // namespace rematch::cuda
