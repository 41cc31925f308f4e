#include "engine/cuda/device.h"

#include <array>

#include "engine/cuda/libraries.h"
#include "engine/cuda/offload.h"
#include "engine/cuda/staging.h"

namespace rematch::cuda {

int device_count() {
  static const int count = [] {
    int found = 0;
    if (cudaGetDeviceCount(&found) == cudaSuccess) return found;
    // Not there is an answer, not an error for the next call to trip over.
    (void)cudaGetLastError();
    return 0;
  }();
  return count;
}

std::string device_description() {
  if (device_count() == 0) return "no CUDA device was found";
  cudaDeviceProp p{};
  check(cudaGetDeviceProperties(&p, 0), "cudaGetDeviceProperties");
  int runtime = 0;
  int driver = 0;
  check(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
  check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  const auto version = [](int v) {
    return std::to_string(v / 1000) + "." + std::to_string(v % 1000 / 10);
  };
  return std::string(p.name) + ", compute capability " + std::to_string(p.major) + "." +
         std::to_string(p.minor) + ", " + std::to_string(p.multiProcessorCount) + " SMs, " +
         std::to_string(p.totalGlobalMem >> 20) + " MiB, CUDA " + version(runtime) + " (driver " +
         version(driver) + "), cuBLAS " + std::to_string(cublaslt().version()) + ", cuDNN " +
         std::to_string(cudnnGetVersion());
}

void require_device(std::string_view asker) {
  if (device_count() > 0) return;
  throw DeviceError("[" + std::string(asker) +
                    "] no CUDA device was found; check that the driver is loaded (nvidia-smi) and "
                    "what CUDA_VISIBLE_DEVICES says, or use the CPU");
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

/// What a captured copy is to read: bytes that live as long as the graph.
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
  const bool captured = capturing();
  const void* source = captured              ? kept_for_capture(from, size)
                       : size <= kMostStaged ? staged(from, size)
                                             : nullptr;
  check(copy_bytes(to, source == nullptr ? from : source, bytes, cudaMemcpyHostToDevice, stream()),
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
