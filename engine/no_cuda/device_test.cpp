#include "engine/cuda/runtime/device.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <string>

#include "engine/cuda/runtime/offload.h"

namespace rematch::cuda {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

TEST_CASE("without a CUDA device, asking for one says why there is none and what to do") {
  if (device_count() > 0) SKIP("there is a CUDA device");
#ifdef REMATCH_HAS_CUDA
  const std::string reason = "no CUDA device was found";
#else
  const std::string reason = "this build has no CUDA";
#endif
  CHECK(device_description() == reason);
  CHECK_THROWS_MATCHES(
      require_device("check"), DeviceError,
      MessageMatches(ContainsSubstring("[check] " + reason) && ContainsSubstring("use the CPU")));
  CHECK_THROWS_MATCHES(device_memory(), DeviceError,
                       MessageMatches(ContainsSubstring("[device_memory] " + reason)));
  CHECK_THROWS_MATCHES(pinned_memory(), DeviceError,
                       MessageMatches(ContainsSubstring("[pinned_memory] " + reason)));
  CHECK_THROWS_AS(begin_copy_out(nullptr, nullptr, 0), DeviceError);
  CHECK_THROWS_AS(begin_copy_back(nullptr, nullptr, 0), DeviceError);
  CHECK_THROWS_AS(synchronize(), DeviceError);
}

}  // namespace
}  // namespace rematch::cuda
