#include "engine/cuda/runtime/context.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <string>

#include "engine/cuda/runtime/driver.h"
#include "engine/cuda/runtime/memory.h"
#include "engine/cuda/runtime/ranges.h"
#include "engine/memory/ledger.h"

namespace rematch::cuda {

namespace {

/// Errors after which the process can do no more on the device: those of which driver_types.h says
/// that it must be terminated and relaunched, a context that is gone, and an MPS client whose
/// server is.
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
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContained:
    case cudaErrorTensorMemoryLeak:
    case cudaErrorContextIsDestroyed:
    case cudaErrorMpsRpcFailure:
    case cudaErrorMpsClientTerminated:
    case cudaErrorExternalDevice:
    case cudaErrorUnknown:
      return true;
    default:
      return false;
  }
}

std::string driver_version() {
  int version = 0;
  (void)cudaDriverGetVersion(&version);
  return version == 0 ? "of no version" : version_text(version);
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
      return "; this build lacks code for the device: build with -D REMATCH_CUDA_MANY_CARDS=ON";
    case cudaErrorUnsupportedPtxVersion:
      return "; this build has no machine code for the device, and the driver, for CUDA " +
             driver_version() + ", cannot translate PTX of CUDA " + version_text(CUDART_VERSION) +
             ": update the driver, or build with -D REMATCH_CUDA_MANY_CARDS=ON";
    case cudaErrorInsufficientDriver:
      return "; the driver supports CUDA " + driver_version() +
             ", and this program was built with " + version_text(CUDART_VERSION) +
             ": update the driver, or build with an older toolkit";
    case cudaErrorSystemDriverMismatch:
      return "; the driver's module and its libraries differ: reboot, or in a container use those "
             "of the host";
    case cudaErrorSystemNotReady:
      return "; a service that the GPU needs is not running: on a machine with NVSwitch, the "
             "fabric "
             "manager";
    case cudaErrorDevicesUnavailable:
      return "; the GPU is in use, or in a compute mode that forbids this: nvidia-smi -q -d "
             "COMPUTE";
    case cudaErrorMpsConnectionFailed:
    case cudaErrorMpsServerNotReady:
      return "; CUDA_MPS_PIPE_DIRECTORY must name the folder of a running nvidia-cuda-mps-control, "
             "which after a fault waits for all of its clients to end";
    case cudaErrorMpsMaxClientsReached:
    case cudaErrorMpsMaxConnectionsReached:
      return "; the MPS server has no room: use fewer --jobs";
    case cudaErrorStreamCaptureUnsupported:
    case cudaErrorStreamCaptureInvalidated:
      return "; run the work once outside of the capture first";
    default:
      return "";
  }
}

[[noreturn]] void fail(const std::string& text, cudaError_t status) {
  if (is_sticky(status)) throw DeviceLost(text);
  throw DeviceError(text);
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

// Has a trivial type, so that it can be read while a thread's other objects are being destroyed,
// a ledger's last blocks among them.
thread_local Context* current = nullptr;

/// Workspaces are never freed.
std::atomic<std::int64_t> held_by_workspaces{0};

/// Gives an ending thread's context back.
void give_back(void* context) {
  std::unique_ptr<Context> mine(static_cast<Context*>(context));
  mine->deferred.start();
  mine->deferred.forget_failure();
  current = nullptr;
  mine->calls = {};
  mine->operations = {};
  mine->direct_products = kDirectProducts;
  mine->precision = Precision::strict;
  const std::lock_guard lock(idle().mutex);
  idle().contexts.push_back(std::move(mine));
}

/// Not a thread_local object, whose destructor may run before those of others that still use the
/// context: the values of a thread's keys are cleared after all of these.
pthread_key_t key_of_current() {
  static const pthread_key_t key = [] {
    pthread_key_t made{};
    if (pthread_key_create(&made, give_back) != 0) {
      throw DeviceError("[cuda] the process has no pthread key left for the threads' contexts");
    }
    return made;
  }();
  return key;
}

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
  if (pthread_setspecific(key_of_current(), mine.get()) != 0) {
    throw DeviceError("[cuda] no memory to keep a thread's context");
  }
  current = mine.release();
  return *current;
}

}  // namespace

Context& context() { return current != nullptr ? *current : acquire(); }

cudaStream_t stream() {
  Context& mine = context();
  if (!mine.deferred.empty()) mine.deferred.start();
  return mine.stream;
}

std::string describe(cudaError_t status) {
  return std::string(cudaGetErrorName(status)) + " (" + cudaGetErrorString(status) + ")" +
         advice(status);
}

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

void check(cudaError_t status, std::string_view what) {
  if (status == cudaSuccess) return;
  // Sticky errors stay; others would surface again in an unrelated check_launch.
  (void)cudaGetLastError();
  fail("[cuda] " + std::string(what) + ": " + describe(status), status);
}

cudaError_t error_of_earlier_work() {
  const cudaStream_t mine = context().stream;
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  const cudaError_t status = cudaStreamIsCapturing(mine, &capture);
  // A capture permits no more than that.
  if (status != cudaSuccess || capture != cudaStreamCaptureStatusNone) return status;
  const cudaError_t earlier = cudaStreamQuery(mine);
  if (earlier != cudaErrorNotReady) return earlier;
  (void)cudaGetLastError();
  return cudaSuccess;
}

void fail_in_library(const std::string& text) {
  cudaError_t status = cudaGetLastError();
  // A library may have its own copy of the runtime, whose last error is not this one's.
  if (status == cudaSuccess && current != nullptr) status = error_of_earlier_work();
  fail(status == cudaSuccess ? text : text + "; CUDA: " + describe(status), status);
}

void check_launch(const char* kernel) {
  check(cudaGetLastError(), kernel);
  context().deferred.rethrow();
  count_kernel();
}

void count_kernel() { count_call(Backend::kernels); }

Deferred& deferred() { return context().deferred; }

cudaError_t fill_bytes(void* block, int value, std::int64_t bytes, cudaStream_t on) {
  if (bytes == 0) return cudaSuccess;
  ++context().operations.fills;
  return cudaMemsetAsync(block, value, static_cast<std::size_t>(bytes), on);
}

cudaError_t copy_bytes(void* to, const void* from, std::int64_t bytes, cudaMemcpyKind kind,
                       cudaStream_t on) {
  if (bytes == 0) return cudaSuccess;
  Operations& counts = context().operations;
  ++(kind == cudaMemcpyHostToDevice   ? counts.uploads
     : kind == cudaMemcpyDeviceToHost ? counts.downloads
                                      : counts.copies);
  return cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), kind, on);
}

cudaError_t wait_for(cudaStream_t on) {
  ++context().operations.waits;
  return cudaStreamSynchronize(on);
}

bool capturing() {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(context().stream, &status), "cudaStreamIsCapturing");
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
  held_by_workspaces += static_cast<std::int64_t>(size);
  return data;
}

std::int64_t workspace_bytes() { return held_by_workspaces; }

}  // namespace rematch::cuda
