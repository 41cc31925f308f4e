#include "engine/kernels/layer_norm.h"

#include <catch2/catch_template_test_macros.hpp>

#include "engine/cuda/testing/device.h"

namespace rematch::cuda {
namespace {

using testing::DeviceArray;
using testing::holds;
using testing::need_device;
using testing::values;

TEMPLATE_TEST_CASE("layer norm gives the CPU's bits on the device", "[gpu][sums]", float, double) {
  using T = TestType;
  need_device();
  for (const auto [rows, cols] : testing::kTables) {
    for (const bool parameters : {true, false}) {
      CAPTURE(rows, cols, parameters);
      const std::int64_t n = rows * cols;
      const auto x = values<T>(n, 1);
      const auto gy = values<T>(n, 2);
      const auto w = values<T>(cols, 3);
      const auto b = values<T>(cols, 4);
      const auto eps = T(0.125);
      std::vector<T> y(x.size());
      std::vector<T> mean(static_cast<std::size_t>(rows));
      std::vector<T> rstd(mean.size());
      std::vector<T> gx(x.size());
      std::vector<T> gw(w.size());
      std::vector<T> gb(w.size());
      const T* wp = parameters ? w.data() : nullptr;
      cpu::layer_norm_forward(rows, cols, x.data(), wp, parameters ? b.data() : nullptr, eps,
                              y.data(), mean.data(), rstd.data());
      cpu::layer_norm_backward(rows, cols, gy.data(), x.data(), mean.data(), rstd.data(), wp,
                               gx.data(), gw.data(), gb.data());

      const DeviceArray<T> dx(x);
      const DeviceArray<T> dgy(gy);
      const DeviceArray<T> dw(w);
      const DeviceArray<T> db(b);
      const DeviceArray<T> dy(n);
      const DeviceArray<T> dmean(rows);
      const DeviceArray<T> drstd(rows);
      const DeviceArray<T> dgx(n);
      const DeviceArray<T> dgw(cols);
      const DeviceArray<T> dgb(cols);
      const T* dwp = parameters ? dw.data() : nullptr;
      layer_norm_forward(rows, cols, dx.data(), dwp, parameters ? db.data() : nullptr, eps,
                         dy.data(), dmean.data(), drstd.data());
      layer_norm_backward(rows, cols, dgy.data(), dx.data(), dmean.data(), drstd.data(), dwp,
                          dgx.data(), dgw.data(), dgb.data());
      CHECK(holds(dy, y));
      CHECK(holds(dmean, mean));
      CHECK(holds(drstd, rstd));
      CHECK(holds(dgx, gx));
      CHECK(holds(dgw, gw));
      CHECK(holds(dgb, gb));

      const DeviceArray<T> alone(cols);
      layer_norm_backward<T>(rows, cols, dgy.data(), dx.data(), dmean.data(), drstd.data(), dwp,
                             nullptr, nullptr, alone.data());
      CHECK(holds(alone, dgb.host()));
    }
  }
}

TEMPLATE_TEST_CASE("RMS norm gives the CPU's bits on the device", "[gpu][sums]", float, double) {
  using T = TestType;
  need_device();
  for (const auto [rows, cols] : testing::kTables) {
    CAPTURE(rows, cols);
    const std::int64_t n = rows * cols;
    const auto x = values<T>(n, 1);
    const auto gy = values<T>(n, 2);
    const auto w = values<T>(cols, 3);
    const auto eps = T(0.125);
    std::vector<T> y(x.size());
    std::vector<T> rstd(static_cast<std::size_t>(rows));
    std::vector<T> gx(x.size());
    std::vector<T> gw(w.size());
    cpu::layer_norm_forward<T>(rows, cols, x.data(), w.data(), nullptr, eps, y.data(), nullptr,
                               rstd.data());
    cpu::layer_norm_backward<T>(rows, cols, gy.data(), x.data(), nullptr, rstd.data(), w.data(),
                                gx.data(), gw.data(), nullptr);

    const DeviceArray<T> dx(x);
    const DeviceArray<T> dgy(gy);
    const DeviceArray<T> dw(w);
    const DeviceArray<T> dy(n);
    const DeviceArray<T> drstd(rows);
    const DeviceArray<T> dgx(n);
    const DeviceArray<T> dgw(cols);
    layer_norm_forward<T>(rows, cols, dx.data(), dw.data(), nullptr, eps, dy.data(), nullptr,
                          drstd.data());
    layer_norm_backward<T>(rows, cols, dgy.data(), dx.data(), nullptr, drstd.data(), dw.data(),
                           dgx.data(), dgw.data(), nullptr);
    CHECK(holds(dy, y));
    CHECK(holds(drstd, rstd));
    CHECK(holds(dgx, gx));
    CHECK(holds(dgw, gw));
  }
}

}  // namespace
}  // namespace rematch::cuda
