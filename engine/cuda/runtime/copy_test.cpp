// Copies between the host and the device: what becomes of their sources.
#include <catch2/catch_test_macros.hpp>
#include <numeric>

#include "engine/ambient/ambient_scope.h"
#include "engine/cuda/runtime/context.h"
#include "engine/cuda/runtime/graph.h"
#include "engine/cuda/testing/device.h"

namespace rematch::cuda {
namespace {

using namespace testing;
using Bytes = std::vector<unsigned char>;

Bytes pattern(std::size_t n, unsigned char first) {
  Bytes bytes(n);
  std::iota(bytes.begin(), bytes.end(), first);
  return bytes;
}

std::int64_t size_of(const Bytes& bytes) { return static_cast<std::int64_t>(bytes.size()); }

}  // namespace

DEVICE_TEST_CASE("the source of a copy to the device may change as soon as the call returns") {
  for (const std::size_t n : {1UL, 4UL, 1000UL, 1UL << 16U, (1UL << 16U) + 1, 3UL << 20U}) {
    CAPTURE(n);
    const Bytes want = pattern(n, 1);
    const DeviceArray<unsigned char> to(static_cast<std::int64_t>(n));
    Bytes source = want;
    copy_to_device(to.data(), source.data(), size_of(source));
    std::fill(source.begin(), source.end(), static_cast<unsigned char>(0xee));
    CHECK(testing::holds(to, want));
  }
}

DEVICE_TEST_CASE("many copies in a row keep what each of their sources held") {
  // Four megabytes in pieces of every size that is copied on the way through pinned memory.
  Bytes want;
  std::vector<std::size_t> sizes;
  for (std::size_t i = 0; want.size() < std::size_t{4} << 20U; ++i) {
    sizes.push_back((i * 7919) % (1U << 16U) + 1);
    const Bytes piece = pattern(sizes.back(), static_cast<unsigned char>(i));
    want.insert(want.end(), piece.begin(), piece.end());
  }
  const DeviceArray<unsigned char> to(size_of(want));
  std::size_t at = 0;
  for (const std::size_t size : sizes) {
    const auto from = want.begin() + static_cast<std::ptrdiff_t>(at);
    Bytes piece(from, from + static_cast<std::ptrdiff_t>(size));
    copy_to_device(to.data() + at, piece.data(), size_of(piece));
    std::fill(piece.begin(), piece.end(), static_cast<unsigned char>(0xee));
    at += size;
  }
  CHECK(testing::holds(to, want));
}

DEVICE_TEST_CASE("a captured copy brings what its source held at the capture, run after run") {
  const AmbientScope scope(std::make_shared<Ledger>(device_memory()));
  for (const std::size_t n : {16UL, std::size_t{1} << 20U}) {
    CAPTURE(n);
    const Bytes want = pattern(n, 5);
    const DeviceArray<unsigned char> to(static_cast<std::int64_t>(n));
    Bytes source = want;
    Graph graph(ambient().streams,
                [&] { copy_to_device(to.data(), source.data(), size_of(source)); });
    std::fill(source.begin(), source.end(), static_cast<unsigned char>(0xee));
    for (int run = 0; run < 2; ++run) {
      check(cudaMemsetAsync(to.data(), 0, n, stream()), "memset");
      graph.run();
      CHECK(testing::holds(to, want));
    }
  }
}

DEVICE_TEST_CASE(
    "memory of the device cannot be allocated within a capture, which is then spoilt") {
  (void)stream();
  for (int which = 0; which < 2; ++which) {
    CAPTURE(which);
    check(cudaStreamBeginCapture(stream(), cudaStreamCaptureModeThreadLocal), "begin capture");
    void* block = nullptr;
    const cudaError_t refused = which == 0 ? cudaMalloc(&block, 256) : cudaMallocHost(&block, 256);
    CHECK(refused == cudaErrorStreamCaptureUnsupported);
    cudaGraph_t graph = nullptr;
    CHECK(cudaStreamEndCapture(stream(), &graph) == cudaErrorStreamCaptureInvalidated);
    CHECK(graph == nullptr);
    (void)cudaGetLastError();
  }
}

}  // namespace rematch::cuda
