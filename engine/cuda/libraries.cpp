#include "engine/cuda/libraries.h"

#include <array>
#include <string>

namespace rematch::cuda {

// A CUDA error behind a library's says more, and whether the context is lost.

void check(cublasStatus_t status, std::string_view what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw DeviceError("[cublaslt] " + std::string(what) + ": " + cublasLtGetStatusName(status) +
                    " (" + cublasLtGetStatusString(status) + ")" + last_error());
}

void check(cudnnStatus_t status, std::string_view what) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  std::array<char, 512> last{};
  cudnnGetLastErrorString(last.data(), last.size());
  throw DeviceError("[cudnn] " + std::string(what) + ": " + cudnnGetErrorString(status) + " (" +
                    last.data() + ")" + last_error());
}

cublasLtHandle_t cublaslt_handle() {
  Context& mine = context();
  if (mine.cublaslt == nullptr) {
    forbid_capture("creation of a cuBLASLt handle");
    check(cublasLtCreate(&mine.cublaslt), "cublasLtCreate");
  }
  return mine.cublaslt;
}

cudnnHandle_t cudnn_handle() {
  Context& mine = context();
  if (mine.cudnn == nullptr) {
    forbid_capture("creation of a cuDNN handle");
    cudnnHandle_t made = nullptr;
    check(cudnnCreate(&made), "cudnnCreate");
    check(cudnnSetStream(made, mine.stream), "cudnnSetStream");
    mine.cudnn = made;
  }
  return mine.cudnn;
}

}  // namespace rematch::cuda
