#include "engine/cuda/runtime/device.h"

#include <unistd.h>

#include <array>
#include <set>

#include "engine/cuda/runtime/driver.h"
#include "engine/cuda/runtime/libraries.h"
#include "engine/cuda/runtime/memory.h"
#include "engine/cuda/runtime/offload.h"
#include "engine/cuda/runtime/probe.h"
#include "engine/cuda/runtime/staging.h"

namespace rematch::cuda {

namespace {

struct Found {
  int count = 0;
  cudaError_t status = cudaSuccess;
};

const Found& found() {
  static const Found found = [] {
    Found f;
    f.status = cudaGetDeviceCount(&f.count);
    // Not there is an answer, not an error for the next call to trip over.
    (void)cudaGetLastError();
    if (f.status != cudaSuccess) f.count = 0;
    return f;
  }();
  return found;
}

/// The variables of the environment that reach CUDA and its libraries, "; NAME=VALUE" each. They
/// may decide which algorithms run, and with them bits.
std::string library_variables() {
  std::set<std::string> seen;
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    for (const std::string_view prefix :
         {"CUDA_MPS_", "CUBLAS", "CUDNN_", "NVIDIA_TF32_OVERRIDE=", "CUDA_VISIBLE_DEVICES=",
          "NVIDIA_VISIBLE_DEVICES=", "CUDA_DEVICE_ORDER=", "CUDA_FORCE_", "CUDA_DISABLE_"}) {
      if (text.starts_with(prefix)) seen.emplace(text);
    }
  }
  std::string list;
  for (const std::string& variable : seen) list += "; " + variable;
  return list;
}

/// Attribute of the SMs that this process may use; under MPS they may be fewer than the device has.
int visible(cudaDeviceAttr attribute) {
  int value = 0;
  // One that the driver does not know is as good as not set.
  if (cudaDeviceGetAttribute(&value, attribute, 0) != cudaSuccess) (void)cudaGetLastError();
  return value;
}

}  // namespace

bool means_no_device(cudaError_t status, bool with_driver) {
  return status == cudaErrorNoDevice || (status == cudaErrorInsufficientDriver && !with_driver);
}

int device_count() { return found().count; }

std::string device_problem() {
  const cudaError_t status = found().status;
  if (status == cudaSuccess || means_no_device(status, has_driver())) return "";
  return "no CUDA device can be used: cudaGetDeviceCount: error " + std::to_string(status) + ", " +
         describe(status);
}

std::string device_description() {
  if (device_count() == 0) {
    const std::string problem = device_problem();
    return problem.empty() ? "no CUDA device was found" : problem;
  }
  cudaDeviceProp p{};
  check(cudaGetDeviceProperties(&p, 0), "cudaGetDeviceProperties");
  int runtime = 0;
  int driver = 0;
  check(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
  check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  return std::string(p.name) + ", compute capability " + std::to_string(p.major) + "." +
         std::to_string(p.minor) + ", " + std::to_string(visible(cudaDevAttrMultiProcessorCount)) +
         " SMs" + (visible(cudaDevAttrMpsEnabled) != 0 ? " under MPS" : "") + ", " +
         std::to_string(p.totalGlobalMem >> 20) + " MiB, CUDA " + version_text(runtime) +
         " (driver " + version_text(driver) + "), cuBLAS " + std::to_string(cublaslt().version()) +
         ", cuDNN " + std::to_string(cudnnGetVersion()) + library_variables();
}

void require_device(std::string_view asker) {
  const std::string who = "[" + std::string(asker) + "] ";
  if (device_count() > 0) {
    static const cudaError_t status = try_kernel();
    if (status == cudaSuccess) return;
    throw DeviceError(who + "the device cannot be used: error " + std::to_string(status) + ", " +
                      describe(status));
  }
  if (const std::string problem = device_problem(); !problem.empty()) {
    throw DeviceError(who + problem);
  }
  throw DeviceError(who +
                    "no CUDA device was found; check that the driver is loaded (nvidia-smi) and "
                    "what CUDA_VISIBLE_DEVICES says, or use the CPU");
}

DeviceBytes device_bytes() {
  DeviceBytes bytes;
  const auto pool = [](cudaMemPoolAttr attribute) {
    std::uint64_t value = 0;
    check(cudaMemPoolGetAttribute(memory_pool(), attribute, &value), "cudaMemPoolGetAttribute");
    return static_cast<std::int64_t>(value);
  };
  bytes.pool_used_peak = pool(cudaMemPoolAttrUsedMemHigh);
  bytes.pool_reserved_peak = pool(cudaMemPoolAttrReservedMemHigh);
  bytes.workspaces = workspace_bytes();
  return bytes;
}

Precision precision() { return context().precision; }
void set_precision(Precision precision) { context().precision = precision; }

std::int64_t direct_products() { return context().direct_products; }
void set_direct_products(std::int64_t products) { context().direct_products = products; }

std::string_view to_string(Backend backend) {
  constexpr std::array<std::string_view, kBackendCount> names{"kernels", "cublaslt", "cudnn"};
  return names[static_cast<std::size_t>(backend)];
}

std::int64_t backend_calls(Backend backend) {
  return context().calls[static_cast<std::size_t>(backend)];
}

Operations operations() {
  const Context& mine = context();
  const auto calls = [&](Backend b) { return mine.calls[static_cast<std::size_t>(b)]; };
  Operations all = mine.operations;
  all.kernels = calls(Backend::kernels);
  all.products = calls(Backend::cublaslt) + calls(Backend::cudnn);
  return all;
}

namespace {

/// Whether the device reads pageable memory by itself (GH200, or with HMM). Copies from there need
/// no staging, and CUDA does not promise that they have read their source when the call returns.
bool reads_pageable_memory() {
  static const bool reads = [] {
    int value = 0;
    check(cudaDeviceGetAttribute(&value, cudaDevAttrPageableMemoryAccess, 0),
          "cudaDeviceGetAttribute");
    return value != 0;
  }();
  return reads;
}

/// Keeps what a captured copy is to read: bytes that live as long as the graph.
const void* kept_for_capture(const void* from, std::size_t bytes) {
  auto* const kept = context().captured_sources;
  if (kept == nullptr) {
    throw DeviceError(
        "[cuda] a copy from the host cannot be captured, except by cuda::Graph, which keeps what "
        "the copy reads");
  }
  const auto* const first = static_cast<const std::byte*>(from);
  return kept->emplace_back(first, first + bytes).data();
}

}  // namespace

void copy_to_device(void* to, const void* from, std::int64_t bytes) {
  if (bytes == 0) return;
  const auto size = static_cast<std::size_t>(bytes);
  // Before the bytes are staged, because it may start copies that are staged as well.
  const cudaStream_t on = stream();
  const bool captured = capturing();
  const void* source = captured              ? kept_for_capture(from, size)
                       : size <= kMostStaged ? staged(from, size)
                                             : nullptr;
  check(copy_bytes(to, source == nullptr ? from : source, bytes, cudaMemcpyHostToDevice, on),
        "cudaMemcpyAsync to the device");
  if (source == nullptr && reads_pageable_memory()) synchronize();
}

void copy_to_host(void* to, const void* from, std::int64_t bytes) {
  check(copy_bytes(to, from, bytes, cudaMemcpyDeviceToHost, stream()),
        "cudaMemcpyAsync to the host");
  synchronize();
}

void synchronize() {
  const cudaStream_t mine = stream();
  finish_copies();
  check(wait_for(mine), "cudaStreamSynchronize");
  context().deferred.rethrow();
}

}  // namespace rematch::cuda
