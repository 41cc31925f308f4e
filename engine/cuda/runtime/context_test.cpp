#include "engine/cuda/runtime/context.h"

#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <iostream>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "engine/cuda/runtime/libraries.h"
#include "engine/cuda/testing/device.h"
#include "engine/kernels/linear.h"
#include "engine/memory/ledger.h"

namespace rematch::cuda {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;
using namespace testing;

/// Captures stream() for a scope, and throws the graph away.
class Capture {
 public:
  Capture() {
    check(cudaStreamBeginCapture(stream(), cudaStreamCaptureModeThreadLocal), "begin capture");
  }
  ~Capture() {
    cudaGraph_t graph = nullptr;
    (void)cudaStreamEndCapture(stream(), &graph);
    if (graph != nullptr) (void)cudaGraphDestroy(graph);
    (void)cudaGetLastError();
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;
};

// Without the tag, for these need no GPU.
TEST_CASE("errors that break the device context say what to do") {
  CHECK_THROWS_MATCHES(check(cudaErrorIllegalAddress, "a_kernel"), DeviceError,
                       MessageMatches(ContainsSubstring("a_kernel: cudaErrorIllegalAddress") &&
                                      ContainsSubstring("restart the process") &&
                                      ContainsSubstring("compute-sanitizer")));
  CHECK_THROWS_MATCHES(check(cudaErrorInvalidValue, "a_call"), DeviceError,
                       MessageMatches(ContainsSubstring("a_call: cudaErrorInvalidValue") &&
                                      !ContainsSubstring("restart")));
  CHECK_NOTHROW(check(cudaSuccess, "a_call"));
}

TEST_CASE("failures of the libraries name the library, the call and the status") {
  CHECK_THROWS_MATCHES(
      check(CUBLAS_STATUS_INVALID_VALUE, "cublasLtMatmul"), DeviceError,
      MessageMatches(ContainsSubstring("[cublaslt] cublasLtMatmul: CUBLAS_STATUS_INVALID_VALUE")));
  CHECK_THROWS_MATCHES(check(CUDNN_STATUS_NOT_SUPPORTED, "cudnnBackendFinalize"), DeviceError,
                       MessageMatches(ContainsSubstring(
                           "[cudnn] cudnnBackendFinalize: CUDNN_STATUS_NOT_SUPPORTED")));
}

TEST_CASE("a library that cannot allocate is out of memory") {
  CHECK_THROWS_MATCHES(
      check(CUBLAS_STATUS_ALLOC_FAILED, "cublasLtMatmul"), OutOfMemory,
      MessageMatches(ContainsSubstring("cublasLtMatmul") && ContainsSubstring("shrink the batch")));
  for (const cudnnStatus_t status : {CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED,
                                     CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED}) {
    CHECK_THROWS_AS(check(status, "cudnnBackendExecute"), OutOfMemory);
  }
}

DEVICE_TEST_CASE("a device is described by its name and the versions that decide bits",
                 "[device]") {
  const std::string text = device_description();
  CHECK_THAT(text,
             ContainsSubstring("SMs") && ContainsSubstring("cuDNN") && ContainsSubstring("cuBLAS"));
}

// Hidden: ci/test-gpu runs it before all others, for these are what a first run fails by.
TEST_CASE("the versions of the driver and the libraries that are found", "[.versions]") {
  int driver = 0;
  int runtime = 0;
  // Without a driver the runtime has a version all the same.
  (void)cudaDriverGetVersion(&driver);
  CHECK(cudaRuntimeGetVersion(&runtime) == cudaSuccess);
  std::cout << "\nversions: driver for CUDA " << version_text(driver) << ", runtime "
            << version_text(runtime) << ", cuBLAS " << cublaslt().version() << ", cuDNN "
            << cudnnGetVersion() << "; " << device_description() << "\n";
}

TEST_CASE("a machine without a GPU has none, and every other error is one") {
  CHECK(means_no_device(cudaErrorNoDevice, true));
  CHECK(means_no_device(cudaErrorInsufficientDriver, false));
  CHECK_FALSE(means_no_device(cudaErrorInsufficientDriver, true));
  CHECK_FALSE(means_no_device(cudaErrorSystemDriverMismatch, false));
  CHECK_FALSE(means_no_device(cudaErrorInitializationError, true));
  CHECK_FALSE(means_no_device(cudaErrorMpsServerNotReady, true));
}

DEVICE_TEST_CASE("bytes of workspaces stand beside those of the pool") {
  const DeviceBytes before = device_bytes();
  (void)workspace((std::size_t{9} << 20) + static_cast<std::size_t>(before.workspaces));
  const DeviceBytes after = device_bytes();
  CHECK(after.workspaces >= before.workspaces + (std::int64_t{9} << 20));
  CHECK(after.pool_used_peak >= after.workspaces);
  CHECK(after.pool_reserved_peak >= after.pool_used_peak);
  CHECK(device_memory()->reserved() <= after.pool_reserved_peak);
}

DEVICE_TEST_CASE("threads have streams of their own, which do not wait for the default stream") {
  constexpr std::size_t kThreads = 4;
  // Before the threads: what they leave when they end goes to the next one that asks.
  const cudaStream_t mine = stream();
  std::vector<cudaStream_t> streams(kThreads);
  std::vector<unsigned> flags(kThreads);
  std::vector<std::thread> threads;
  std::atomic<std::size_t> ready{0};
  for (std::size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      streams[t] = stream();
      if (cudaStreamGetFlags(streams[t], &flags[t]) != cudaSuccess) flags[t] = 0;
      // All are alive at once: a thread that ends leaves its stream to the next.
      ++ready;
      while (ready < kThreads) std::this_thread::yield();
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(std::set<cudaStream_t>(streams.begin(), streams.end()).size() == kThreads);
  CHECK(flags == std::vector<unsigned>(kThreads, cudaStreamNonBlocking));
  CHECK(std::count(streams.begin(), streams.end(), mine) == 0);
}

DEVICE_TEST_CASE(
    "a new thread starts with strict precision and no calls, whatever earlier threads did") {
  std::thread([] {
    set_precision(Precision::tf32);
    set_direct_products(5);
    count_call(Backend::cudnn);
  }).join();
  Precision found = Precision::tf32;
  std::int64_t calls = -1;
  std::int64_t products = -1;
  std::thread([&] {
    found = precision();
    calls = backend_calls(Backend::cudnn);
    products = direct_products();
  }).join();
  CHECK(found == Precision::strict);
  CHECK(calls == 0);
  CHECK(products == kDirectProducts);
}

/// When its thread ends, tells whether a thread that starts then gets this one's stream.
struct LastUse {
  bool* shares;
  LastUse(bool* to) : shares(to) {}
  LastUse(const LastUse&) = delete;
  LastUse& operator=(const LastUse&) = delete;
  ~LastUse() {
    const cudaStream_t mine = stream();
    std::thread([&] { *shares = stream() == mine; }).join();
  }
};

DEVICE_TEST_CASE("a thread keeps its stream until the last of its objects is destroyed") {
  bool shares = true;
  std::thread([&] {
    // Made before the thread's first use of CUDA, and so destroyed after what that one made.
    static thread_local const LastUse last(&shares);
    (void)stream();
  }).join();
  CHECK_FALSE(shares);
}

DEVICE_TEST_CASE("a thread that has ended leaves its stream to the next") {
  const auto stream_of_a_thread = [] {
    cudaStream_t found = nullptr;
    std::thread([&] { found = stream(); }).join();
    return found;
  };
  const cudaStream_t first = stream_of_a_thread();
  CHECK(stream_of_a_thread() == first);
}

DEVICE_TEST_CASE("a workspace only grows, one block a user, and what was outgrown stays valid") {
  void* const small = workspace(100);
  CHECK(workspace(50) == small);
  CHECK(workspace(100, Scratch::cudnn) != small);
  CHECK(reinterpret_cast<std::uintptr_t>(small) % 256 == 0);
  constexpr std::size_t kLarge = std::size_t{9} << 20;
  void* const large = workspace(kLarge);
  check(cudaMemsetAsync(large, 1, kLarge, stream()), "memset");
  check(cudaMemsetAsync(small, 2, 100, stream()), "memset of an outgrown block");
  synchronize();
  CHECK(workspace(kLarge) == large);
}

DEVICE_TEST_CASE("growth during a capture is an error that says to run once before") {
  (void)workspace(1000);
  const Capture capture;
  CHECK(capturing());
  CHECK_NOTHROW(workspace(1000));
  CHECK_THROWS_MATCHES(workspace(std::size_t{1} << 33), DeviceError,
                       MessageMatches(ContainsSubstring("run the same work once before")));
}

DEVICE_TEST_CASE("a layer that ran once can be captured, and its graph replays it") {
  const auto x = values<float>(60 * 70, 1);
  const auto w = values<float>(50 * 70, 2);
  const auto b = values<float>(50, 3);
  const DeviceArray<float> dx(x);
  const DeviceArray<float> dw(w);
  const DeviceArray<float> db(b);
  const DeviceArray<float> y(60 * 50);
  const auto run = [&] {
    linear_forward(dx.data(), dw.data(), db.data(), y.data(), std::int64_t{60}, std::int64_t{70},
                   std::int64_t{50});
  };
  run();
  const std::vector<float> want = y.host();
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t replay = nullptr;
  check(cudaStreamBeginCapture(stream(), cudaStreamCaptureModeThreadLocal), "begin capture");
  run();
  check(cudaStreamEndCapture(stream(), &graph), "end capture");
  check(cudaGraphInstantiate(&replay, graph, 0), "instantiate");
  check(cudaMemsetAsync(y.data(), 0, 60 * 50 * sizeof(float), stream()), "memset");
  check(cudaGraphLaunch(replay, stream()), "launch");
  CHECK(same_bits(y.host(), want));
  check(cudaGraphExecDestroy(replay), "destroy");
  check(cudaGraphDestroy(graph), "destroy");
}

DEVICE_TEST_CASE("a kernel that cannot start is an error at its launch, and the next one is not") {
  // A call with a wrong argument leaves an error behind just as a wrong launch does.
  REQUIRE(cudaSetDevice(1 << 20) != cudaSuccess);
  CHECK_THROWS_AS(check_launch("a_kernel"), DeviceError);
  CHECK_NOTHROW(check_launch("the_next_kernel"));
}

}  // namespace
}  // namespace rematch::cuda
