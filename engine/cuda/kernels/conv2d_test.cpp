#include "engine/kernels/conv2d.h"

#include <catch2/catch_template_test_macros.hpp>
#include <limits>
#include <thread>

#include "engine/cpu/testing/convolutions.h"
#include "engine/cuda/testing/device.h"
#include "engine/cuda/testing/reference.h"

namespace rematch::cuda {
namespace {

using cpu::testing::distance;
using cpu::testing::kConvolutions;
using cpu::testing::product_bound;
using namespace testing;

template <typename T>
struct Results {
  std::vector<T> y;
  std::vector<T> gx;
  std::vector<T> gw;
  std::vector<T> gb;
};

template <typename T>
struct ConvLayer {
  using Make = std::vector<T> (*)(std::int64_t, std::uint64_t);
  explicit ConvLayer(const Conv2dShape& s, std::int64_t move = 0, Make make = values<T>)
      : shape(s),
        shift(move),
        x(make(s.n * s.c * s.h * s.w, 1)),
        w(make(s.out_c * s.c * s.kh * s.kw, 2)),
        b(make(s.out_c, 3)),
        gy(make(s.n * s.out_c * s.out_h() * s.out_w(), 4)),
        dx(x, move),
        dw(w, move),
        db(b, move),
        dgy(gy, move) {}

  Conv2dShape shape;
  std::int64_t shift;
  std::vector<T> x;
  std::vector<T> w;
  std::vector<T> b;
  std::vector<T> gy;
  DeviceArray<T> dx;
  DeviceArray<T> dw;
  DeviceArray<T> db;
  DeviceArray<T> dgy;

  [[nodiscard]] Results<T> on_device() const {
    const DeviceArray<T> y(static_cast<std::int64_t>(gy.size()), shift);
    const DeviceArray<T> gx(static_cast<std::int64_t>(x.size()), shift);
    const DeviceArray<T> gw(static_cast<std::int64_t>(w.size()), shift);
    const DeviceArray<T> gb(static_cast<std::int64_t>(b.size()), shift);
    T* const none = nullptr;
    cuda::conv2d_forward<T>(shape, dx.data(), dw.data(), db.data(), none, y.data());
    cuda::conv2d_grad_input<T>(shape, dgy.data(), dw.data(), none, gx.data());
    cuda::conv2d_grad_weight<T>(shape, dgy.data(), dx.data(), none, gw.data());
    cuda::conv2d_grad_bias<T>(shape, dgy.data(), gb.data());
    const bool guarded = y.guarded() && gx.guarded() && gw.guarded() && gb.guarded();
    CHECK(guarded);
    return {y.host(), gx.host(), gw.host(), gb.host()};
  }

  [[nodiscard]] Results<T> on_cpu() const {
    Results<T> r{sized<T>(static_cast<std::int64_t>(gy.size())),
                 sized<T>(static_cast<std::int64_t>(x.size())),
                 sized<T>(static_cast<std::int64_t>(w.size())),
                 sized<T>(static_cast<std::int64_t>(b.size()))};
    auto scratch = sized<T>(cpu::conv2d_scratch_elements(shape));
    cpu::conv2d_forward<T>(shape, x.data(), w.data(), b.data(), scratch.data(), r.y.data());
    cpu::conv2d_grad_input<T>(shape, gy.data(), w.data(), scratch.data(), r.gx.data());
    cpu::conv2d_grad_weight<T>(shape, gy.data(), x.data(), scratch.data(), r.gw.data());
    cpu::conv2d_grad_bias<T>(shape, gy.data(), r.gb.data());
    return r;
  }
};

/// The bound of conv2d.h plus the CPU's own, with the bias's rounding; TF32 rounds both operands.
template <typename T>
double bound(std::int64_t terms, Precision precision = Precision::strict) {
  const auto n = static_cast<double>(terms + 2);
  const double rounded = precision == Precision::tf32 ? n * (0x1p-10 + 0x1p-22) : 0.0;
  return n * (n + 110) * unit<T>() + product_bound<T>(terms) + rounded;
}

template <typename T>
void check_close(const ConvLayer<T>& layer, const Results<T>& got,
                 Precision precision = Precision::strict) {
  const Conv2dShape& s = layer.shape;
  const Results<T> want = layer.on_cpu();
  const std::int64_t positions = s.n * s.out_h() * s.out_w();
  CHECK(distance(got.y, want.y) <= bound<T>(s.c * s.kh * s.kw, precision));
  CHECK(distance(got.gx, want.gx) <= bound<T>(s.out_c * s.kh * s.kw, precision));
  CHECK(distance(got.gw, want.gw) <= bound<T>(positions, precision));
  CHECK(same_bits(got.gb, want.gb));
}

template <typename T>
bool alike(const Results<T>& a, const Results<T>& b) {
  return same_bits(a.y, b.y) && same_bits(a.gx, b.gx) && same_bits(a.gw, b.gw) &&
         same_bits(a.gb, b.gb);
}

TYPED_DEVICE_TEST_CASE(
    "convolutions on the device are the CPU's within the bound, on cuDNN and off it") {
  using T = TestType;
  for (const std::int64_t products : {std::int64_t{0}, kAlways}) {
    const DirectUpTo limit(products);
    for (const std::int64_t shift : {0, 1}) {
      for (const Conv2dShape& s : kConvolutions) {
        CAPTURE(products, shift, s.n, s.c, s.h, s.w, s.out_c, s.kh, s.kw, s.stride_h, s.stride_w,
                s.pad_h, s.pad_w);
        const ConvLayer<T> layer(s, shift);
        check_close(layer, layer.on_device());
      }
    }
  }
}

TYPED_DEVICE_TEST_CASE("convolutions whose sums are exact have the CPU's values in every order") {
  using T = TestType;
  for (const std::int64_t products : {std::int64_t{0}, kAlways}) {
    const DirectUpTo limit(products);
    for (const Conv2dShape& s : kConvolutions) {
      CAPTURE(products, s.n, s.c, s.h, s.w, s.out_c, s.kh, s.kw);
      const ConvLayer<T> layer(s, 0, testing::quarters<T>);
      const Results<T> got = layer.on_device();
      const Results<T> want = layer.on_cpu();
      CHECK(distance(got.y, want.y) == 0.0);
      CHECK(distance(got.gx, want.gx) == 0.0);
      CHECK(distance(got.gw, want.gw) == 0.0);
      CHECK(distance(got.gb, want.gb) == 0.0);
    }
  }
}

TYPED_DEVICE_TEST_CASE("a convolution has the same bits every time, whatever ran in between") {
  using T = TestType;
  for (const std::int64_t products : {std::int64_t{0}, kAlways}) {
    const DirectUpTo limit(products);
    std::vector<Results<T>> first;
    for (int round = 0; round < 3; ++round) {
      std::size_t at = 0;
      for (const Conv2dShape& s : kConvolutions) {
        CAPTURE(products, round, s.n, s.c, s.h, s.w, s.out_c, s.kh, s.kw);
        const Results<T> got = ConvLayer<T>(s).on_device();
        if (round == 0) {
          first.push_back(got);
        } else {
          CHECK(alike(got, first[at++]));
        }
      }
    }
  }
}

DEVICE_TEST_CASE("threads with a plan each compute a convolution to the same bits") {
  constexpr Conv2dShape kShape{16, 16, 16, 16, 32, 3, 3, 1, 1, 1, 1};
  const DirectUpTo limit(0);
  const std::vector<float> want = ConvLayer<float>(kShape).on_device().y;
  std::vector<std::vector<float>> got(4);
  std::vector<std::thread> threads;
  for (std::vector<float>& one : got) {
    threads.emplace_back([&one, kShape] {
      set_direct_products(0);
      const auto x = values<float>(kShape.n * kShape.c * kShape.h * kShape.w, 1);
      const auto w = values<float>(kShape.out_c * kShape.c * 9, 2);
      const auto b = values<float>(kShape.out_c, 3);
      const DeviceArray<float> dx(x);
      const DeviceArray<float> dw(w);
      const DeviceArray<float> db(b);
      const DeviceArray<float> y(kShape.n * kShape.out_c * kShape.out_h() * kShape.out_w());
      for (int i = 0; i < 10; ++i) {
        cuda::conv2d_forward<float>(kShape, dx.data(), dw.data(), db.data(), nullptr, y.data());
      }
      one = y.host();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::vector<float>& one : got) CHECK(same_bits(one, want));
}

DEVICE_TEST_CASE("small convolutions run on own kernels, larger ones on cuDNN") {
  const ConvLayer<float> layer({16, 16, 16, 16, 32, 3, 3, 1, 1, 1, 1});
  // y, gx and gw; the bias and its gradient are own kernels in both.
  std::int64_t before = backend_calls(Backend::cudnn);
  {
    const DirectUpTo limit(0);
    (void)layer.on_device();
  }
  CHECK(backend_calls(Backend::cudnn) == before + 3);
  before = backend_calls(Backend::cudnn);
  const std::int64_t kernels = backend_calls(Backend::kernels);
  {
    const DirectUpTo limit(kAlways);
    (void)layer.on_device();
  }
  CHECK(backend_calls(Backend::cudnn) == before);
  CHECK(backend_calls(Backend::kernels) >= kernels + 5);
  // 16 * 16 * 16 outputs of 32 channels with 144 products each are above the default limit.
  CHECK(direct_products() == kDirectProducts);
  (void)layer.on_device();
  CHECK(backend_calls(Backend::cudnn) == before + 3);
}

DEVICE_TEST_CASE(
    "each pass of a large convolution runs on cuDNN or counts as slow, a small one neither") {
  // The emulated device refuses all plans for the first, whose padding is wider than its kernel.
  for (const Conv2dShape& s : {Conv2dShape{2, 3, 5, 5, 4, 1, 1, 1, 1, 2, 2},
                               Conv2dShape{2, 3, 5, 5, 4, 3, 3, 1, 1, 1, 1}}) {
    CAPTURE(s.kh);
    const ConvLayer<float> layer(s);
    for (const std::int64_t products : {std::int64_t{0}, kAlways}) {
      const DirectUpTo limit(products);
      for (int round = 0; round < 2; ++round) {
        const Operations before = operations();
        check_close(layer, layer.on_device());
        const Operations work = operations() - before;
        CHECK(work.products + work.slow_convolutions == (products == 0 ? 3 : 0));
      }
    }
  }
}

DEVICE_TEST_CASE("a bias is added within a convolution, on cuDNN and off it") {
  const ConvLayer<float> layer({2, 3, 5, 5, 4, 3, 3, 1, 1, 1, 1});
  for (const std::int64_t products : {std::int64_t{0}, kAlways}) {
    CAPTURE(products);
    const DirectUpTo limit(products);
    const DeviceArray<float> y(static_cast<std::int64_t>(layer.gy.size()));
    const auto forward = [&] {
      cuda::conv2d_forward<float>(layer.shape, layer.dx.data(), layer.dw.data(), layer.db.data(),
                                  nullptr, y.data());
    };
    forward();
    const Operations before = operations();
    forward();
    const Operations once = operations() - before;
    CHECK(once.kernels + once.products == 1);
  }
}

DEVICE_TEST_CASE(
    "a convolution under TF32 stays within its own bound and leaves the strict one alone") {
  const DirectUpTo limit(0);
  const ConvLayer<float> layer({8, 32, 14, 14, 64, 3, 3, 1, 1, 1, 1});
  const Results<float> strict = layer.on_device();
  check_close(layer, strict);
  set_precision(Precision::tf32);
  const Results<float> tf32 = layer.on_device();
  const Results<float> again = layer.on_device();
  set_precision(Precision::strict);
  check_close(layer, tf32, Precision::tf32);
  CHECK(alike(tf32, again));
  CHECK(alike(layer.on_device(), strict));
}

DEVICE_TEST_CASE("an empty batch gives empty images and zero gradients of the parameters") {
  for (const std::int64_t products : {std::int64_t{0}, kAlways}) {
    const DirectUpTo limit(products);
    const Results<float> got = ConvLayer<float>({0, 2, 5, 5, 3, 3, 3, 1, 1, 1, 1}).on_device();
    CHECK(got.y.empty());
    CHECK(got.gx.empty());
    CHECK(same_bits(got.gw, sized<float>(54)));
    CHECK(same_bits(got.gb, sized<float>(3)));
  }
}

}  // namespace
}  // namespace rematch::cuda
