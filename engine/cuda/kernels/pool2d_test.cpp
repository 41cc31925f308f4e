#include "engine/kernels/pool2d.h"

#include <catch2/catch_template_test_macros.hpp>

#include "engine/cuda/testing/twin.h"

namespace rematch::cuda {
namespace {

using namespace testing;

//                                   n  c  h   w   kh kw sh sw ph pw
constexpr Pool2dShape kPoolShapes[] = {
    {1, 1, 1, 1, 1, 1, 1, 1, 0, 0},   {2, 3, 4, 4, 2, 2, 2, 2, 0, 0},
    {2, 3, 5, 7, 2, 2, 2, 2, 0, 0},   {3, 2, 7, 5, 3, 3, 2, 2, 1, 1},
    {1, 2, 9, 9, 3, 2, 1, 1, 1, 0},   {2, 1, 6, 8, 2, 3, 3, 4, 1, 1},
    {1, 4, 40, 37, 5, 4, 1, 3, 2, 2}, {8, 16, 56, 56, 3, 3, 2, 2, 1, 1},
    {0, 3, 4, 4, 2, 2, 2, 2, 0, 0}};

TYPED_DEVICE_TEST_CASE("pooling gives the CPU's bits on the device") {
  using T = TestType;
  for (const Pool2dShape& s : kPoolShapes) {
    // Few distinct values, so that windows hold ties.
    for (const bool ties : {false, true}) {
      CAPTURE(s.n, s.c, s.h, s.w, s.kh, s.kw, s.stride_h, s.stride_w, ties);
      const std::int64_t inputs = s.n * s.c * s.h * s.w;
      const std::int64_t outputs = s.n * s.c * s.out_h() * s.out_w();
      auto x = values<T>(inputs, 1);
      if (ties) {
        for (T& value : x) value = value < T(0) ? T(-1) : T(1);
      }
      const Twin<T> input(x, 1);
      const Twin<T> gy(values<T>(outputs, 2), 1);
      const Twin<T> y(outputs, 1);
      const Twin<T> gx(inputs, 1);
      const Twin<std::int32_t> indices(outputs, 1);
      REMATCH_CALL_BOTH(max_pool2d_forward<T>, s, input, y, indices);
      REMATCH_CALL_BOTH(max_pool2d_backward<T>, s, gy, indices, gx);
      check_alike(y, indices, gx);
      REMATCH_CALL_BOTH(avg_pool2d_forward<T>, s, input, y);
      REMATCH_CALL_BOTH(avg_pool2d_backward<T>, s, gy, gx);
      check_alike(y, gx);
    }
  }
}

DEVICE_TEST_CASE("the last NaN of a window is the one reported on the device") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const DeviceArray<float> x(std::vector<float>{nan, 5, nan, 7});
  const DeviceArray<float> y(1);
  const DeviceArray<std::int32_t> index(1);
  cuda::max_pool2d_forward({1, 1, 2, 2, 2, 2, 2, 2, 0, 0}, x.data(), y.data(), index.data());
  CHECK(y.host()[0] != y.host()[0]);
  CHECK(index.host()[0] == 2);
}

}  // namespace
}  // namespace rematch::cuda
