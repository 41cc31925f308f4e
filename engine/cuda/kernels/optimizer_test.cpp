#include "engine/kernels/optimizer.h"

#include <catch2/catch_template_test_macros.hpp>
#include <memory>
#include <vector>

#include "engine/cuda/testing/twin.h"

namespace rematch::cuda {
namespace {

using namespace testing;

using math::AdamItem;
using math::SgdItem;

TYPED_DEVICE_TEST_CASE("optimizer steps give the CPU's bits on the device") {
  using T = TestType;
  for_each_layout([](std::int64_t n, std::int64_t shift) {
    const Twin<T> g(values<T>(n, 1), shift);
    const Twin<T> w(values<T>(n, 2), shift);
    const Twin<T> first(std::vector<T>(static_cast<std::size_t>(n)), shift);
    const Twin<T> second(first.host(), shift);
    const auto sgd = [&](T momentum, bool start, bool buffered) {
      const auto buffer = null_unless(buffered, first);
      const SgdItem<T> want{n, start, g.on_host(), buffer.on_host(), w.on_host()};
      cpu::sgd_steps<T>({&want, 1}, T(0.1), momentum);
      const SgdItem<T> item{n, start, g.on_device(), buffer.on_device(), w.on_device()};
      sgd_steps<T>({&item, 1}, T(0.1), momentum);
      check_alike(w, first);
    };
    sgd(T(0), true, false);
    for (const bool start : {true, false, false}) sgd(T(0.9), start, true);
    const Twin<std::int64_t> steps(std::vector<std::int64_t>{0});
    const auto adam = [&](auto at) {
      return AdamItem<T>{n, at(steps), at(g), at(first), at(second), at(w)};
    };
    for (std::int64_t t = 1; t <= 3; ++t) {
      const AdamItem<T> want = adam(testing::OnHost::at);
      cpu::adam_steps<T>({&want, 1}, 1e-3, 0.9, 0.999, 1e-8);
      const AdamItem<T> item = adam(testing::OnDevice::at);
      adam_steps<T>({&item, 1}, 1e-3, 0.9, 0.999, 1e-8);
      check_alike(w, first, second, steps);
      CHECK(steps.host()[0] == t);
    }
  });
}

DEVICE_TEST_CASE("a step of many parameters takes one launch for 64 of them, Adam's two") {
  constexpr std::size_t kCount = 70;
  std::vector<std::vector<float>> w;
  std::vector<std::unique_ptr<DeviceArray<float>>> dw;
  std::vector<std::unique_ptr<DeviceArray<float>>> dm;
  std::vector<std::unique_ptr<DeviceArray<float>>> dv;
  std::vector<std::unique_ptr<DeviceArray<std::int64_t>>> dt;
  std::vector<SgdItem<float>> sgd;
  std::vector<AdamItem<float>> adam;
  for (std::size_t i = 0; i < kCount; ++i) {
    const auto n = static_cast<std::int64_t>(i * i);
    const auto shift = static_cast<std::int64_t>(i % 4);
    const std::vector<float> zeros(i * i);
    w.push_back(values<float>(n, i));
    dw.push_back(std::make_unique<DeviceArray<float>>(w[i], shift));
    dm.push_back(std::make_unique<DeviceArray<float>>(zeros, shift));
    dv.push_back(std::make_unique<DeviceArray<float>>(zeros, shift));
    // Each has made another number of steps.
    dt.push_back(std::make_unique<DeviceArray<std::int64_t>>(
        std::vector<std::int64_t>{static_cast<std::int64_t>(i)}));
    sgd.push_back({n, false, dw[i]->data(), nullptr, dw[i]->data()});
    adam.push_back({n, dt[i]->data(), dw[i]->data(), dm[i]->data(), dv[i]->data(), dw[i]->data()});
  }
  const std::int64_t before = backend_calls(Backend::kernels);
  sgd_steps<float>(sgd, 0.5F, 0);
  CHECK(backend_calls(Backend::kernels) - before == 2);
  adam_steps<float>(adam, 1e-3, 0.9, 0.999, 1e-8);
  CHECK(backend_calls(Backend::kernels) - before == 6);
  for (std::size_t i = 0; i < kCount; ++i) {
    CAPTURE(i);
    const auto n = static_cast<std::int64_t>(i * i);
    const std::vector<float> start = w[i];
    const SgdItem<float> sgd_want{n, false, start.data(), nullptr, w[i].data()};
    cpu::sgd_steps<float>({&sgd_want, 1}, 0.5F, 0);
    std::vector<float> m(i * i);
    std::vector<float> v(i * i);
    const std::vector<float> g = w[i];
    auto t = static_cast<std::int64_t>(i);
    const AdamItem<float> adam_want{n, &t, g.data(), m.data(), v.data(), w[i].data()};
    cpu::adam_steps<float>({&adam_want, 1}, 1e-3, 0.9, 0.999, 1e-8);
    CHECK(holds(*dw[i], w[i]));
    CHECK(holds(*dm[i], m));
    CHECK(holds(*dv[i], v));
  }
}

}  // namespace
}  // namespace rematch::cuda
