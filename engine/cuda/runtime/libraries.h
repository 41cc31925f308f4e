#pragma once

// Handles of cuBLASLt and cuDNN, one of each a thread, made when first needed and bound to
// stream().

#include <cublasLt.h>
#include <cudnn.h>

#include <cstdint>
#include <string_view>

#include "engine/cuda/runtime/context.h"

namespace rematch::cuda {

/// Throw OutOfMemory when the library could not allocate, DeviceError for anything else but
/// success.
void check(cublasStatus_t status, std::string_view what);
void check(cudnnStatus_t status, std::string_view what);
bool is_out_of_memory(cudnnStatus_t status);

/// Attempts may leave an error behind, which must not surface in the next launch; throws for one
/// that cannot be taken off CUDA's record, for it has broken the device context.
void check_context(std::string_view what);

/// The functions of cuBLASLt that are used. The library is loaded when first needed, not linked:
/// its half a gigabyte would add 70 ms to the start of every program, on the CPU as well.
struct CublasLt {
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtGetVersion) version;
  decltype(&cublasLtGetStatusName) status_name;
  decltype(&cublasLtGetStatusString) status_string;
  decltype(&cublasLtMatmul) matmul;
  decltype(&cublasLtMatmulAlgoGetHeuristic) get_heuristic;
  decltype(&cublasLtMatmulAlgoConfigGetAttribute) get_algorithm_attribute;
  decltype(&cublasLtMatmulDescInit_internal) init_operation;
  decltype(&cublasLtMatmulDescSetAttribute) set_operation_attribute;
  decltype(&cublasLtMatmulPreferenceInit_internal) init_preference;
  decltype(&cublasLtMatmulPreferenceSetAttribute) set_preference_attribute;
  decltype(&cublasLtMatrixLayoutInit_internal) init_layout;
};
/// Throws DeviceError when the library cannot be loaded.
const CublasLt& cublaslt();

/// Work given to it has to name stream().
cublasLtHandle_t cublaslt_handle();
cudnnHandle_t cudnn_handle();

/// The largest scratch that an algorithm may ask for. Constant, and not what happens to be free,
/// for it decides which algorithm is chosen, and so the bits.
inline constexpr std::int64_t kMaxLibraryScratch = std::int64_t{256} << 20;

/// Whether every pointer is aligned to 16 bytes, the most that algorithms ask for. Blocks of
/// device_memory() are; for others algorithms are chosen that ask for an element's alignment alone.
template <typename... Pointers>
bool aligned16(Pointers... pointers) {
  return ((reinterpret_cast<std::uintptr_t>(pointers) % 16 == 0) && ...);
}

}  // namespace rematch::cuda
