#include "engine/cuda/context.h"
#include "engine/cuda/ranges.h"

#include <algorithm>
#include <mutex>
#include <string>

#include "engine/cuda/memory.h"
#include "engine/memory/ledger.h"

namespace rematch::cuda {

namespace {

/// Errors after which the device context is unusable (CUDA Runtime API, "Error handling").
bool is_sticky(cudaError_t status) {
  switch (status) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorECCUncorrectable:
    case cudaErrorExternalDevice:
    case cudaErrorUnknown:
      return true;
    default:
      return false;
  }
}

std::string advice(cudaError_t status) {
  if (is_sticky(status)) {
    return "; the device context is lost, possibly by an earlier kernel: restart the process, and "
           "run it under compute-sanitizer to find the kernel";
  }
  switch (status) {
    case cudaErrorMemoryAllocation:
      return "; shrink the batch, checkpoint more segments, or free the device for this process";
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorUnsupportedPtxVersion:
      return "; this build lacks code for the device: set CMAKE_CUDA_ARCHITECTURES and build again";
    case cudaErrorInsufficientDriver:
      return "; the driver is missing or older than the CUDA runtime: update it";
    case cudaErrorStreamCaptureUnsupported:
    case cudaErrorStreamCaptureInvalidated:
      return "; run the work once outside of the capture first";
    default:
      return "";
  }
}

std::string describe(cudaError_t status) {
  return std::string(cudaGetErrorName(status)) + " (" + cudaGetErrorString(status) + ")" +
         advice(status);
}

/// The contexts that no thread uses. Never destroyed: threads may end after everything else.
struct Idle {
  std::mutex mutex;
  std::vector<std::unique_ptr<Context>> contexts;
};
Idle& idle() {
  static Idle* const instance = new Idle;
  return *instance;
}

// Of trivial type, so that it can still be read when a thread's other objects are being destroyed,
// a ledger's last blocks among them.
thread_local Context* current = nullptr;

/// Gives the thread's context back when the thread ends.
struct Lease {
  Lease() = default;
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  ~Lease() {
    if (current == nullptr) return;
    current->calls = {};
    current->direct_products = kDirectProducts;
    current->precision = Precision::strict;
    const std::lock_guard lock(idle().mutex);
    idle().contexts.emplace_back(current);
  }
};

Context& acquire() {
  require_device("cuda");
  check(cudaSetDevice(0), "cudaSetDevice");
  std::unique_ptr<Context> mine;
  {
    const std::lock_guard lock(idle().mutex);
    if (!idle().contexts.empty()) {
      mine = std::move(idle().contexts.back());
      idle().contexts.pop_back();
    }
  }
  if (mine == nullptr) {
    mine = std::make_unique<Context>();
    for (cudaStream_t* made : {&mine->stream, &mine->copies}) {
      check(cudaStreamCreateWithFlags(made, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    }
    check(cudaEventCreateWithFlags(&mine->order, cudaEventDisableTiming),
          "cudaEventCreateWithFlags");
  }
  show_ranges_in_profiler();
  static thread_local Lease lease;
  current = mine.release();
  return *current;
}

}  // namespace

Context& context() { return current != nullptr ? *current : acquire(); }

cudaStream_t stream() { return context().stream; }

void check(cudaError_t status, std::string_view what) {
  if (status == cudaSuccess) return;
  // Sticky errors stay; others would surface again in an unrelated check_launch.
  (void)cudaGetLastError();
  throw DeviceError("[cuda] " + std::string(what) + ": " + describe(status));
}

std::string last_error() {
  const cudaError_t status = cudaGetLastError();
  return status == cudaSuccess ? "" : "; CUDA: " + describe(status);
}

void check_launch(std::string_view kernel) {
  check(cudaGetLastError(), kernel);
  count_call(Backend::kernels);
}

bool capturing() {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(stream(), &status), "cudaStreamIsCapturing");
  return status != cudaStreamCaptureStatusNone;
}

void forbid_capture(std::string_view what) {
  if (!capturing()) return;
  throw DeviceError("[cuda] " + std::string(what) +
                    " cannot happen during a capture; run the same work once before capturing it");
}

void* workspace(std::size_t bytes, Scratch user) {
  Context& mine = context();
  Context::Block& block = mine.scratch[static_cast<std::size_t>(user)];
  if (bytes <= block.bytes && block.data != nullptr) return block.data;
  forbid_capture("growth of a workspace");
  constexpr std::size_t kGrain = std::size_t{1} << 20;
  const std::size_t wanted = std::max(bytes, 2 * block.bytes);
  const std::size_t size = std::max(kGrain, (wanted + kGrain - 1) / kGrain * kGrain);
  void* data = nullptr;
  const cudaError_t status = cudaMallocFromPoolAsync(&data, size, memory_pool(), mine.stream);
  if (status == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();
    throw OutOfMemory("[cuda] out of memory: the device refused a workspace of " +
                      std::to_string(size) +
                      " bytes; shrink the batch, or free the device for this process");
  }
  check(status, "cudaMallocFromPoolAsync for a workspace");
  if (block.data != nullptr) mine.outgrown.push_back(block.data);
  block = {data, size};
  return data;
}

}  // namespace rematch::cuda
