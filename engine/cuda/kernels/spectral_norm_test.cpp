#include "engine/kernels/spectral_norm.h"

#include <catch2/catch_template_test_macros.hpp>

#include "engine/cuda/testing/twin.h"

namespace rematch::cuda {
namespace {

using namespace testing;

TYPED_DEVICE_TEST_CASE("spectral normalisation gives the CPU's bits on the device", "[sums]") {
  using T = TestType;
  // Sums of one block and of several, down columns of one chunk and of several.
  for (const std::int64_t rows : {1, 3, 130, 1100}) {
    for (const std::int64_t cols : {1, 17, 1030}) {
      CAPTURE(rows, cols);
      const Twin<T> w(values<T>(rows * cols, 1));
      const Twin<T> u(values<T>(rows, 2));
      const Twin<T> v(cols);
      const Twin<T> sigma(1);
      const Twin<T> g(values<T>(rows * cols, 3));
      const T eps{1e-12};
      REMATCH_CALL_BOTH(column_products<T>, rows, cols, w, u, v);
      check_alike(v);
      REMATCH_CALL_BOTH(normalise_vector<T>, cols, eps, v, nullptr);
      check_alike(v);
      REMATCH_CALL_BOTH(row_products<T>, rows, cols, w, v, u);
      check_alike(u);
      REMATCH_CALL_BOTH(normalise_vector<T>, rows, eps, u, sigma);
      check_alike(u, sigma);
      REMATCH_CALL_BOTH(spectral_norm_backward<T>, rows, cols, w, u, v, sigma, g);
      check_alike(g);
      REMATCH_CALL_BOTH(inner_product<T>, rows * cols, w, g, sigma);
      check_alike(sigma);
    }
  }
}

TYPED_DEVICE_TEST_CASE("a vector of zeros stays one on the device") {
  using T = TestType;
  const DeviceArray<T> x(std::vector<T>{0, 0, 0});
  const DeviceArray<T> product(std::vector<T>{7});
  normalise_vector(3, T{1e-12}, x.data(), product.data());
  CHECK(holds(x, std::vector<T>{0, 0, 0}));
  CHECK(holds(product, std::vector<T>{0}));
}

}  // namespace
}  // namespace rematch::cuda
