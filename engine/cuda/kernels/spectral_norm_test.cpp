#include "engine/kernels/spectral_norm.h"

#include <catch2/catch_template_test_macros.hpp>

#include "engine/cuda/testing/device.h"

namespace rematch::cuda {
namespace {

using testing::DeviceArray;
using testing::holds;
using testing::need_device;
using testing::values;

TEMPLATE_TEST_CASE("spectral normalisation gives the CPU's bits on the device", "[gpu][sums]",
                   float, double) {
  using T = TestType;
  need_device();
  // Sums of one block and of several, down columns of one chunk and of several.
  for (const std::int64_t rows : {1, 3, 130, 1100}) {
    for (const std::int64_t cols : {1, 17, 1030}) {
      CAPTURE(rows, cols);
      const auto w = values<T>(rows * cols, 1);
      auto u = values<T>(rows, 2);
      std::vector<T> v(static_cast<std::size_t>(cols));
      std::vector<T> sigma(1);
      auto g = values<T>(rows * cols, 3);
      const DeviceArray<T> dw(w);
      const DeviceArray<T> du(u);
      const DeviceArray<T> dv(cols);
      const DeviceArray<T> dsigma(1);
      const DeviceArray<T> dg(g);
      const T eps{1e-12};
      T* const none = nullptr;

      cpu::column_products(rows, cols, w.data(), u.data(), v.data());
      column_products(rows, cols, dw.data(), du.data(), dv.data());
      CHECK(holds(dv, v));
      cpu::normalise_vector(cols, eps, v.data(), none);
      normalise_vector(cols, eps, dv.data(), none);
      CHECK(holds(dv, v));
      cpu::row_products(rows, cols, w.data(), v.data(), u.data());
      row_products(rows, cols, dw.data(), dv.data(), du.data());
      CHECK(holds(du, u));
      cpu::normalise_vector(rows, eps, u.data(), sigma.data());
      normalise_vector(rows, eps, du.data(), dsigma.data());
      CHECK(holds(du, u));
      CHECK(holds(dsigma, sigma));
      cpu::spectral_norm_backward(rows, cols, w.data(), u.data(), v.data(), sigma.data(), g.data());
      spectral_norm_backward(rows, cols, dw.data(), du.data(), dv.data(), dsigma.data(), dg.data());
      CHECK(holds(dg, g));
      cpu::inner_product(rows * cols, w.data(), g.data(), sigma.data());
      inner_product(rows * cols, dw.data(), dg.data(), dsigma.data());
      CHECK(holds(dsigma, sigma));
    }
  }
}

TEMPLATE_TEST_CASE("a vector of zeros stays one on the device", "[gpu]", float, double) {
  using T = TestType;
  need_device();
  const DeviceArray<T> x(std::vector<T>{0, 0, 0});
  const DeviceArray<T> product(std::vector<T>{7});
  normalise_vector(3, T{1e-12}, x.data(), product.data());
  CHECK(holds(x, std::vector<T>{0, 0, 0}));
  CHECK(holds(product, std::vector<T>{0}));
}

}  // namespace
}  // namespace rematch::cuda
