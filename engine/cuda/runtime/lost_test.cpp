#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <string>

#include "engine/ambient/ambient_scope.h"
#include "engine/cuda/runtime/libraries.h"
#include "engine/cuda/testing/device.h"
#include "engine/ops/activation.h"

namespace rematch::cuda {
namespace {

/// The text of the DeviceLost that `call` throws.
template <typename Call>
std::string loss_in(const Call& call) {
  try {
    call();
  } catch (const DeviceLost& lost) {
    return lost.what();
  }
  return "";
}

}  // namespace

// Hidden: only an emulated device can be lost at will, once a process
// (REMATCH_EMULATOR_LOSE_IN=math::relu<).
TEST_CASE("once the device is lost every call says so, and none blames its own work", "[.lost]") {
  if (std::getenv("REMATCH_EMULATOR_LOSE_IN") == nullptr) SKIP("the device is not to be lost");
  const AmbientScope scope(std::make_shared<Ledger>(device_memory()), 5);
  const std::vector<double> numbers{-1, 2};
  const Tensor x = Tensor::from(numbers, Shape{1, 2});
  const Tensor y = relu(x);
  const std::string first = loss_in([&] { (void)y.to_vector(); });
  CHECK(first.find("cudaErrorIllegalAddress") != std::string::npos);
  CHECK(first.find("the device context is lost") != std::string::npos);
  CHECK(loss_in([&] { (void)gelu(x); }) != "");
  CHECK(loss_in([&] { (void)x.to_vector(); }) != "");
  CHECK(loss_in([&] { (void)Tensor::from(numbers, Shape{1, 2}); }) != "");
  CHECK(loss_in([] { synchronize(); }) != "");
  CHECK(loss_in([] { (void)capturing(); }) != "");
  // A library names its own status, which is not CUDA's.
  CHECK(loss_in([] { check(CUBLAS_STATUS_EXECUTION_FAILED, "a product"); }) != "");
  CHECK(loss_in([] { check(CUDNN_STATUS_EXECUTION_FAILED, "a convolution"); }) != "");
}

DEVICE_TEST_CASE("an error that is not sticky is no loss of the device") {
  CHECK_THROWS_AS(check(cudaErrorInvalidValue, "a call"), DeviceError);
  CHECK(loss_in([] {
          try {
            check(CUBLAS_STATUS_NOT_SUPPORTED, "a product");
          } catch (const DeviceLost&) {
            throw;
          } catch (const DeviceError&) {
          }
        }) == "");
  CHECK_NOTHROW(synchronize());
}

TEST_CASE("errors after which the process must be relaunched are a loss of the device") {
  for (const cudaError_t status :
       {cudaErrorIllegalAddress, cudaErrorLaunchTimeout, cudaErrorAssert,
        cudaErrorHardwareStackError, cudaErrorIllegalInstruction, cudaErrorMisalignedAddress,
        cudaErrorInvalidAddressSpace, cudaErrorInvalidPc, cudaErrorLaunchFailure,
        cudaErrorTensorMemoryLeak, cudaErrorContained, cudaErrorExternalDevice,
        cudaErrorECCUncorrectable, cudaErrorNvlinkUncorrectable, cudaErrorContextIsDestroyed,
        cudaErrorMpsClientTerminated, cudaErrorMpsRpcFailure}) {
    CAPTURE(cudaGetErrorName(status));
    CHECK_THROWS_AS(check(status, "a call"), DeviceLost);
  }
}

}  // namespace rematch::cuda
