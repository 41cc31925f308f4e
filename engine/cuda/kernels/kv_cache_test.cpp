#include "engine/kernels/kv_cache.h"

#include <catch2/catch_template_test_macros.hpp>

#include "engine/cuda/testing/twin.h"

namespace rematch::cuda {
namespace {

using namespace testing;

TYPED_DEVICE_TEST_CASE("a cache stands before every sequence on the device, as on the CPU") {
  using T = TestType;
  for (const std::int64_t sequences : {1, 3, 70}) {
    for (const std::int64_t cached : {1, 6, 33}) {
      for (const std::int64_t added : {1, 8, 515}) {
        CAPTURE(sequences, cached, added);
        const Twin<T> cache(values<T>(cached, 1));
        const Twin<T> x(values<T>(sequences * added, 2));
        const Twin<T> y(sequences * (cached + added));
        REMATCH_CALL_BOTH(prepend<T>, sequences, cached, added, cache, x, y);
        check_alike(y);
      }
    }
  }
}

}  // namespace
}  // namespace rematch::cuda
