#include "engine/kernels/linear.h"

#include <catch2/catch_template_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <thread>
#include <utility>

#include "engine/cuda/kernels/matmul.h"
#include "engine/cuda/testing/device.h"
#include "engine/cuda/testing/reference.h"

namespace rematch::cuda {
namespace {

using cpu::testing::distance;
using cpu::testing::product_bound;
using namespace testing;

struct Extents {
  std::int64_t n;
  std::int64_t k;
  std::int64_t m;
};
// Single elements, vectors, odd extents, powers of two, and sums long enough to be split.
constexpr Extents kShapes[] = {
    {1, 1, 1},      {1, 3, 2},       {2, 7, 5},      {3, 8, 3},      {4, 9, 10},   {5, 17, 4},
    {1, 70, 20},    {33, 1, 65},     {6, 33, 1},     {13, 31, 29},   {64, 64, 64}, {127, 129, 63},
    {33, 90, 259},  {256, 512, 10},  {300, 130, 65}, {1000, 16, 24}, {8, 4096, 8}, {20000, 32, 17},
    {17, 20000, 3}, {128, 784, 512}, {5, 12, 10007}};

/// Host arrays of one layer, and its device's.
template <typename T>
struct Layer {
  using Make = std::vector<T> (*)(std::int64_t, std::uint64_t);
  explicit Layer(const Extents& e, std::int64_t shift = 0, Make make = values<T>)
      : extents(e),
        x(make(e.n * e.k, 1)),
        w(make(e.m * e.k, 2)),
        b(make(e.m, 3)),
        gy(make(e.n * e.m, 4)),
        dx(x, shift),
        dw(w, shift),
        db(b, shift),
        dgy(gy, shift) {}

  Extents extents;
  std::vector<T> x;
  std::vector<T> w;
  std::vector<T> b;
  std::vector<T> gy;
  DeviceArray<T> dx;
  DeviceArray<T> dw;
  DeviceArray<T> db;
  DeviceArray<T> dgy;

  [[nodiscard]] std::vector<T> forward(bool bias = true, std::int64_t shift = 0) const {
    const DeviceArray<T> y(extents.n * extents.m, shift);
    linear_forward<T>(dx.data(), dw.data(), bias ? db.data() : nullptr, y.data(), extents.n,
                      extents.k, extents.m);
    CHECK(y.guarded());
    return y.host();
  }
  [[nodiscard]] std::vector<T> grad_input(std::int64_t shift = 0) const {
    const DeviceArray<T> gx(extents.n * extents.k, shift);
    linear_grad_input(dgy.data(), dw.data(), gx.data(), extents.n, extents.k, extents.m);
    CHECK(gx.guarded());
    return gx.host();
  }
  [[nodiscard]] std::vector<T> grad_weight(std::int64_t shift = 0) const {
    const DeviceArray<T> gw(extents.m * extents.k, shift);
    linear_grad_weight(dgy.data(), dx.data(), gw.data(), extents.n, extents.k, extents.m);
    CHECK(gw.guarded());
    return gw.host();
  }
};

/// The CPU's results for a layer.
template <typename T>
struct Expected {
  explicit Expected(const Layer<T>& l)
      : y(l.gy.size()), y_plain(l.gy.size()), gx(l.x.size()), gw(l.w.size()) {
    const auto [n, k, m] = l.extents;
    cpu::linear_forward(l.x.data(), l.w.data(), l.b.data(), y.data(), n, k, m);
    cpu::linear_forward<T>(l.x.data(), l.w.data(), nullptr, y_plain.data(), n, k, m);
    cpu::linear_grad_input(l.gy.data(), l.w.data(), gx.data(), n, k, m);
    cpu::linear_grad_weight(l.gy.data(), l.x.data(), gw.data(), n, k, m);
  }

  std::vector<T> y;
  std::vector<T> y_plain;
  std::vector<T> gx;
  std::vector<T> gw;
};

/// Each of the two sides is within product_bound of the exact sum; rounding to TF32 adds 2^-11 for
/// each operand of each product, and their product.
template <typename T>
double cross_bound(std::int64_t terms, Precision precision = Precision::strict) {
  const double rounded =
      precision == Precision::tf32 ? static_cast<double>(terms) * (0x1p-10 + 0x1p-22) : 0.0;
  return 2 * product_bound<T>(terms) + rounded;
}

TYPED_DEVICE_TEST_CASE("a linear layer on cuBLASLt is the CPU's within the bound of its sums") {
  using T = TestType;
  const DirectUpTo limit(0);
  for (const std::int64_t shift : {0, 1}) {
    for (const Extents& e : kShapes) {
      CAPTURE(e.n, e.k, e.m, shift);
      const Layer<T> layer(e, shift);
      const Expected<T> want(layer);
      CHECK(distance(layer.forward(true, shift), want.y) <= cross_bound<T>(e.k));
      CHECK(distance(layer.forward(false, shift), want.y_plain) <= cross_bound<T>(e.k));
      CHECK(distance(layer.grad_input(shift), want.gx) <= cross_bound<T>(e.m));
      CHECK(distance(layer.grad_weight(shift), want.gw) <= cross_bound<T>(e.n));
    }
  }
}

TYPED_DEVICE_TEST_CASE(
    "a bias may lie at any address, and a product's search or first run may fail") {
  using T = TestType;
  const DirectUpTo limit(0);
  // One row of x, one output, and extents of which some algorithms do without and some not.
  for (const Extents& e :
       {Extents{1, 70, 20}, Extents{33, 90, 1}, Extents{64, 64, 64}, Extents{33, 90, 259}}) {
    for (const std::int64_t shift : {0, 1, 2}) {
      CAPTURE(e.n, e.k, e.m, shift);
      const Layer<T> layer(e);
      const DeviceArray<T> bias(layer.b, shift);
      const DeviceArray<T> y(e.n * e.m);
      for (int round = 0; round < 2; ++round) {
        linear_forward<T>(layer.dx.data(), layer.dw.data(), bias.data(), y.data(), e.n, e.k, e.m);
        CHECK(y.guarded());
        CHECK(distance(y.host(), Expected<T>(layer).y) <= cross_bound<T>(e.k));
      }
    }
  }
}

TYPED_DEVICE_TEST_CASE("a linear layer on the engine's own kernel has the CPU's bits", "[sums]") {
  using T = TestType;
  const DirectUpTo limit(kAlways);
  for (const std::int64_t shift : {0, 1}) {
    for (const Extents& e : kShapes) {
      CAPTURE(e.n, e.k, e.m, shift);
      const Layer<T> layer(e, shift);
      const Expected<T> want(layer);
      CHECK(same_bits(layer.forward(true, shift), want.y));
      CHECK(same_bits(layer.forward(false, shift), want.y_plain));
      CHECK(same_bits(layer.grad_input(shift), want.gx));
      CHECK(same_bits(layer.grad_weight(shift), want.gw));
    }
  }
}

DEVICE_TEST_CASE(
    "an own product keeps the sign of a zero and begins with the bias, as the CPU's does") {
  const DirectUpTo limit(kAlways);
  // 0 + -0 is 0, a bias of -0 and products of -0 stay -0, and a sum of no products is the bias.
  for (const Extents& e : {Extents{3, 5, 4}, Extents{20, 33, 18}, Extents{4, 0, 3}}) {
    CAPTURE(e.n, e.k, e.m);
    const auto zeros = [](std::int64_t n, std::uint64_t) {
      return std::vector<float>(static_cast<std::size_t>(n), -0.0F);
    };
    Layer<float> layer(e, 0, zeros);
    const Expected<float> minus(layer);
    CHECK(same_bits(layer.forward(), minus.y));
    CHECK(same_bits(layer.forward(false), minus.y_plain));
    CHECK(same_bits(layer.grad_input(), minus.gx));
    CHECK(same_bits(layer.grad_weight(), minus.gw));
    const auto mixed = [](std::int64_t n, std::uint64_t seed) {
      std::vector<float> v(static_cast<std::size_t>(n), seed == 2 ? 0.0F : -0.0F);
      return v;
    };
    const Layer<float> other(e, 0, mixed);
    const Expected<float> want(other);
    CHECK(same_bits(other.forward(), want.y));
    CHECK(same_bits(other.grad_input(), want.gx));
  }
}

TYPED_DEVICE_TEST_CASE("products whose sums are exact have the CPU's bits in every order") {
  using T = TestType;
  const DirectUpTo limit(0);
  for (const Extents& e : kShapes) {
    CAPTURE(e.n, e.k, e.m);
    const Layer<T> layer(e, 0, testing::quarters<T>);
    const Expected<T> want(layer);
    CHECK(distance(layer.forward(), want.y) == 0.0);
    CHECK(distance(layer.forward(false), want.y_plain) == 0.0);
    CHECK(distance(layer.grad_input(), want.gx) == 0.0);
    CHECK(distance(layer.grad_weight(), want.gw) == 0.0);
  }
}

TYPED_DEVICE_TEST_CASE("a linear layer has the same bits every time, whatever ran in between") {
  using T = TestType;
  const DirectUpTo limit(0);
  std::vector<std::vector<T>> first;
  for (int round = 0; round < 2; ++round) {
    std::size_t at = 0;
    for (const Extents& e : kShapes) {
      CAPTURE(e.n, e.k, e.m, round);
      const Layer<T> layer(e);
      for (auto& got : {layer.forward(), layer.grad_input(), layer.grad_weight()}) {
        if (round == 0) {
          first.push_back(got);
        } else {
          CHECK(same_bits(got, first[at++]));
        }
      }
    }
  }
}

DEVICE_TEST_CASE("threads with a stream each compute a linear layer to the same bits") {
  constexpr Extents kShape{257, 300, 65};
  const std::vector<float> want = Layer<float>(kShape).forward();
  constexpr std::size_t kThreads = 4;
  std::vector<std::vector<float>> got(kThreads);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&got, t, kShape] {
      const auto x = values<float>(kShape.n * kShape.k, 1);
      const auto w = values<float>(kShape.m * kShape.k, 2);
      const auto b = values<float>(kShape.m, 3);
      const DeviceArray<float> dx(x);
      const DeviceArray<float> dw(w);
      const DeviceArray<float> db(b);
      const DeviceArray<float> y(kShape.n * kShape.m);
      for (int i = 0; i < 20; ++i) {
        linear_forward(dx.data(), dw.data(), db.data(), y.data(), kShape.n, kShape.k, kShape.m);
      }
      got[t] = y.host();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::vector<float>& one : got) CHECK(same_bits(one, want));
}

DEVICE_TEST_CASE("TF32 is off unless asked for, and then stays within its own bound") {
  CHECK(precision() == Precision::strict);
  constexpr Extents kShape{256, 512, 128};
  const Layer<float> layer(kShape);
  const Expected<float> want(layer);
  const std::vector<float> strict = layer.forward();
  set_precision(Precision::tf32);
  const std::vector<float> tf32 = layer.forward();
  const std::vector<float> again = layer.forward();
  set_precision(Precision::strict);
  CHECK(distance(tf32, want.y) <= cross_bound<float>(kShape.k, Precision::tf32));
  CHECK(same_bits(tf32, again));
  CHECK(same_bits(layer.forward(), strict));
}

DEVICE_TEST_CASE("small products run on an own kernel in one launch, larger ones on cuBLASLt") {
  const auto calls_of = [](const Layer<float>& layer) {
    const std::int64_t kernels = backend_calls(Backend::kernels);
    const std::int64_t products = backend_calls(Backend::cublaslt);
    (void)layer.forward();
    (void)layer.grad_input();
    (void)layer.grad_weight();
    return std::pair(backend_calls(Backend::kernels) - kernels,
                     backend_calls(Backend::cublaslt) - products);
  };
  const Layer<float> small({12, 20, 8});
  const std::int64_t choices = matmul_choices();
  CHECK(calls_of(small) == std::pair<std::int64_t, std::int64_t>(3, 0));
  const Layer<float> at_the_limit({128, 128, 64});
  CHECK(calls_of(at_the_limit) == std::pair<std::int64_t, std::int64_t>(3, 0));
  CHECK(matmul_choices() == choices);
  CHECK(calls_of(Layer<float>({128, 128, 65})).second == 3);
  const DirectUpTo limit(0);
  CHECK(calls_of(small).second == 3);
}

DEVICE_TEST_CASE("an empty batch gives empty outputs and a zero weight gradient") {
  const DirectUpTo limit(GENERATE(std::int64_t{0}, kAlways));
  const Layer<float> layer({0, 3, 4});
  CHECK(layer.forward().empty());
  CHECK(layer.grad_input().empty());
  CHECK(same_bits(layer.grad_weight(), sized<float>(12)));
}

DEVICE_TEST_CASE("what the output held before does not matter, be it NaN") {
  const DirectUpTo limit(GENERATE(std::int64_t{0}, kAlways));
  const Layer<float> layer({9, 11, 7});
  const std::vector<float> want = layer.forward();
  const DeviceArray<float> y(std::vector<float>(63, std::numeric_limits<float>::quiet_NaN()));
  linear_forward(layer.dx.data(), layer.dw.data(), layer.db.data(), y.data(), std::int64_t{9},
                 std::int64_t{11}, std::int64_t{7});
  CHECK(holds(y, want));
}

}  // namespace
}  // namespace rematch::cuda
