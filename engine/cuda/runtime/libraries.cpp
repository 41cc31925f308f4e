#include "engine/cuda/runtime/libraries.h"

#include <dlfcn.h>

#include <array>
#include <string>

#include "engine/memory/ledger.h"

namespace rematch::cuda {

namespace {

#define REMATCH_TEXT_OF(x) #x
#define REMATCH_TEXT(x) REMATCH_TEXT_OF(x)
/// The name that the headers' version has on every machine; the loader looks where it looks for the
/// libraries that are linked.
constexpr const char* kCublasLt = "libcublasLt.so." REMATCH_TEXT(CUBLAS_VER_MAJOR);

void* open_cublaslt() {
  if (void* library = dlopen(kCublasLt, RTLD_NOW | RTLD_LOCAL); library != nullptr) return library;
  const std::string reason = dlerror();
  // Where it was when this was built.
  if (void* library = dlopen(REMATCH_CUBLASLT, RTLD_NOW | RTLD_LOCAL); library != nullptr) {
    return library;
  }
  throw DeviceError("[cublaslt] " + reason +
                    "; install cuBLAS of the CUDA version that this was built with, or add its "
                    "folder to LD_LIBRARY_PATH");
}

template <typename Function>
void find(void* library, const char* name, Function& function) {
  void* const address = dlsym(library, name);
  if (address == nullptr) {
    throw DeviceError("[cublaslt] " + std::string(kCublasLt) + " has no " + name +
                      "; install the version that this was built with");
  }
  function = reinterpret_cast<Function>(address);
}

CublasLt load_cublaslt() {
  void* const library = open_cublaslt();
  CublasLt lt{};
  find(library, "cublasLtCreate", lt.create);
  find(library, "cublasLtGetVersion", lt.version);
  find(library, "cublasLtGetStatusName", lt.status_name);
  find(library, "cublasLtGetStatusString", lt.status_string);
  find(library, "cublasLtMatmul", lt.matmul);
  find(library, "cublasLtMatmulAlgoGetHeuristic", lt.get_heuristic);
  find(library, "cublasLtMatmulAlgoConfigGetAttribute", lt.get_algorithm_attribute);
  find(library, "cublasLtMatmulDescInit_internal", lt.init_operation);
  find(library, "cublasLtMatmulDescSetAttribute", lt.set_operation_attribute);
  find(library, "cublasLtMatmulPreferenceInit_internal", lt.init_preference);
  find(library, "cublasLtMatmulPreferenceSetAttribute", lt.set_preference_attribute);
  find(library, "cublasLtMatrixLayoutInit_internal", lt.init_layout);
  return lt;
}

}  // namespace

const CublasLt& cublaslt() {
  static const CublasLt lt = load_cublaslt();
  return lt;
}

namespace {

[[noreturn]] void throw_out_of_memory(std::string_view library, std::string_view what,
                                      std::string_view status) {
  check_context(what);
  throw OutOfMemory("[" + std::string(library) + "] out of memory: " + std::string(what) + ": " +
                    std::string(status) +
                    "; shrink the batch, or free memory of the device and the host for this "
                    "process");
}

}  // namespace

// A CUDA error behind a library's says more, and whether the context is lost.

void check(cublasStatus_t status, std::string_view what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  const std::string name = cublaslt().status_name(status);
  if (status == CUBLAS_STATUS_ALLOC_FAILED) throw_out_of_memory("cublaslt", what, name);
  fail_in_library("[cublaslt] " + std::string(what) + ": " + name + " (" +
                  cublaslt().status_string(status) + ")");
}

void check(cudnnStatus_t status, std::string_view what) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  const std::string name = cudnnGetErrorString(status);
  if (is_out_of_memory(status)) throw_out_of_memory("cudnn", what, name);
  std::array<char, 512> last{};
  cudnnGetLastErrorString(last.data(), last.size());
  fail_in_library("[cudnn] " + std::string(what) + ": " + name + " (" + last.data() + ")");
}

bool is_out_of_memory(cudnnStatus_t status) {
  return status == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
         status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED;
}

void check_context(std::string_view what) {
  if (device_count() == 0) return;
  (void)cudaGetLastError();
  check(cudaPeekAtLastError(), what);
  // A library may have its own copy of the runtime, whose last error is not this one's.
  check(error_of_earlier_work(), what);
}

cublasLtHandle_t cublaslt_handle() {
  Context& mine = context();
  if (mine.cublaslt == nullptr) {
    forbid_capture("creation of a cuBLASLt handle");
    check(cublaslt().create(&mine.cublaslt), "cublasLtCreate");
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
