#include "engine/kernels/group_norm.h"

#include <catch2/catch_template_test_macros.hpp>

#include "engine/cuda/testing/device.h"

namespace rematch::cuda {
namespace {

using testing::DeviceArray;
using testing::holds;
using testing::need_device;
using testing::values;

struct Sets {
  std::int64_t n;
  std::int64_t c;
  std::int64_t s;
  std::int64_t groups;
};
/// Rank 2 and 4; one group, as many as channels, and between; sets of a half-warp and of a block of
/// threads; channels that end within a block of 1024; fewer and more than 128 samples.
constexpr Sets kSets[] = {{1, 1, 1, 1},    {5, 6, 1, 3},    {128, 64, 1, 8}, {129, 33, 1, 11},
                          {2, 3000, 1, 2}, {3, 2, 2, 1},    {2, 3, 4, 3},    {7, 6, 9, 2},
                          {64, 4, 16, 2},  {50, 8, 49, 4},  {9, 4, 100, 4},  {3, 2, 2500, 1},
                          {600, 2, 4, 2},  {16, 72, 7, 24}, {1, 3, 5000, 3}, {2, 6, 700, 2}};

TEMPLATE_TEST_CASE("group norm gives the CPU's bits on the device", "[gpu][sums]", float, double) {
  using T = TestType;
  need_device();
  for (const auto& [n, c, s, groups] : kSets) {
    for (const bool parameters : {true, false}) {
      CAPTURE(n, c, s, groups, parameters);
      const std::int64_t size = n * c * s;
      const std::int64_t sets = n * groups;
      const auto x = values<T>(size, 1);
      const auto gy = values<T>(size, 2);
      const auto w = values<T>(c, 3);
      const auto b = values<T>(c, 4);
      const auto eps = T(0.125);
      std::vector<T> y(x.size());
      std::vector<T> mean(static_cast<std::size_t>(sets));
      std::vector<T> rstd(mean.size());
      std::vector<T> gx(x.size());
      std::vector<T> gw(w.size());
      std::vector<T> gb(w.size());
      const T* wp = parameters ? w.data() : nullptr;
      cpu::group_norm_forward(n, c, s, groups, x.data(), wp, parameters ? b.data() : nullptr, eps,
                              y.data(), mean.data(), rstd.data());
      cpu::group_norm_backward(n, c, s, groups, gy.data(), x.data(), mean.data(), rstd.data(), wp,
                               gx.data(), gw.data(), gb.data());

      const DeviceArray<T> dx(x);
      const DeviceArray<T> dgy(gy);
      const DeviceArray<T> dw(w);
      const DeviceArray<T> db(b);
      const DeviceArray<T> dy(size);
      const DeviceArray<T> dmean(sets);
      const DeviceArray<T> drstd(sets);
      const DeviceArray<T> dgx(size);
      const DeviceArray<T> dgw(c);
      const DeviceArray<T> dgb(c);
      const T* dwp = parameters ? dw.data() : nullptr;
      group_norm_forward(n, c, s, groups, dx.data(), dwp, parameters ? db.data() : nullptr, eps,
                         dy.data(), dmean.data(), drstd.data());
      group_norm_backward(n, c, s, groups, dgy.data(), dx.data(), dmean.data(), drstd.data(), dwp,
                          dgx.data(), dgw.data(), dgb.data());
      CHECK(holds(dy, y));
      CHECK(holds(dmean, mean));
      CHECK(holds(drstd, rstd));
      CHECK(holds(dgx, gx));
      CHECK(holds(dgw, gw));
      CHECK(holds(dgb, gb));

      const DeviceArray<T> alone(c);
      group_norm_backward<T>(n, c, s, groups, dgy.data(), dx.data(), dmean.data(), drstd.data(),
                             dwp, nullptr, alone.data(), nullptr);
      CHECK(holds(alone, gw));
    }
  }
}

}  // namespace
}  // namespace rematch::cuda
