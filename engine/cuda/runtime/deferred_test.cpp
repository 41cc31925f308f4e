#include "engine/cuda/runtime/deferred.h"

#include <dlfcn.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cstring>
#include <memory>
#include <numeric>
#include <vector>

#include "engine/ambient/ambient_scope.h"
#include "engine/autograd/backward.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/cuda/runtime/memory.h"
#include "engine/cuda/testing/device.h"
#include "engine/memory/ledger.h"
#include "engine/ops/arithmetic.h"
#include "engine/ops/linear.h"
#include "engine/tensor/tensor.h"

namespace rematch::cuda {
namespace {

using namespace testing;

std::vector<int> numbers(std::size_t n, int first) {
  std::vector<int> v(n);
  std::iota(v.begin(), v.end(), first);
  return v;
}

std::int64_t bytes_of(const std::vector<int>& v) {
  return static_cast<std::int64_t>(v.size() * sizeof(int));
}

Tensor ones(std::int64_t n) { return Tensor::ones({n}, DType::float32); }

/// Bytes that memory().read() hands over.
struct Taken {
  std::vector<float> values;
  void from(const Tensor& t) {
    t.storage()->memory().read(t.raw(), t.bytes(), [this](std::span<const std::byte> bytes) {
      values.resize(bytes.size() / sizeof(float));
      std::memcpy(values.data(), bytes.data(), bytes.size());
    });
  }
};

}  // namespace

DEVICE_TEST_CASE("deferred writes come before the work that is queued after them, in their order") {
  const std::vector<int> a = numbers(100, 1);
  const std::vector<int> b = numbers(7, 500);
  const DeviceArray<int> to(100);
  const DeviceArray<int> copy(100);
  Deferred& deferred = context().deferred;
  deferred.fill(to.data(), bytes_of(a), 0);
  deferred.upload(to.data(), a.data(), bytes_of(a));
  deferred.copy(copy.data(), to.data(), bytes_of(a));
  // Over part of what was just read.
  deferred.upload(to.data() + 3, b.data(), bytes_of(b));
  deferred.fill(to.data() + 50, 5 * sizeof(int), 0x0000000200000001U);
  CHECK(testing::holds(copy, a));
  std::vector<int> want = a;
  std::copy(b.begin(), b.end(), want.begin() + 3);
  for (std::size_t i = 0; i < 5; ++i) want[50 + i] = i % 2 == 0 ? 1 : 2;
  CHECK(testing::holds(to, want));
}

DEVICE_TEST_CASE("deferred writes have any size and alignment, and any number") {
  constexpr std::size_t kCount = 2 * kMoves + 5;
  std::vector<std::unique_ptr<DeviceArray<unsigned char>>> to;
  std::vector<std::vector<unsigned char>> want;
  for (std::size_t i = 0; i < kCount; ++i) {
    const auto n = static_cast<std::int64_t>(i * i % 4099);
    to.push_back(std::make_unique<DeviceArray<unsigned char>>(n, static_cast<std::int64_t>(i % 5)));
    want.emplace_back(static_cast<std::size_t>(n), static_cast<unsigned char>(i));
    if (i % 2 == 0) {
      context().deferred.upload(to[i]->data(), want[i].data(), n);
    } else {
      context().deferred.fill(to[i]->data(), n, 0x0101010101010101U * (i % 256));
    }
  }
  for (std::size_t i = 0; i < kCount; ++i) {
    CAPTURE(i);
    CHECK(testing::holds(*to[i], want[i]));
  }
}

DEVICE_TEST_CASE("what is made one after the other takes one copy to the device and one launch") {
  const AmbientScope scope(std::make_shared<Ledger>(device_memory()), 1);
  const Operations before = operations();
  const Tensor a = Tensor::from(std::vector<double>{1, 2}, {2});
  const Tensor b = Tensor::from(std::vector<double>{3, 4}, {2});
  const Tensor c = ones(2);
  const Tensor sum = add(add(a, b), c);
  const Operations made = operations() - before;
  CHECK(made.uploads == 1);
  CHECK(made.kernels == 1 + 2);
  CHECK(made.sum() == 4);
  CHECK(made.waits == 0);
  CHECK(sum.to_vector() == std::vector<double>{5, 7});
}

DEVICE_TEST_CASE("a value that is read is that of the moment, whatever becomes of its block") {
  const bool late = GENERATE(false, true);
  auto ledger = std::make_shared<Ledger>(device_memory());
  ledger->set_poison(true);
  ledger->memory().set_late_poison(late);
  const AmbientScope scope(ledger, 1);
  std::vector<Taken> taken(300);
  Tensor kept = ones(5);
  for (std::size_t i = 0; i < taken.size(); ++i) {
    if (i % 3 == 0) {
      const Tensor released = scale(ones(5), static_cast<double>(i));
      taken[i].from(released);
    } else {
      kept.storage()->before_write();
      const std::vector<float> next(5, static_cast<float>(i));
      kept.copy_from_host(std::as_bytes(std::span(next)));
      taken[i].from(kept);
    }
  }
  const Operations before = operations();
  ledger->memory().finish_reads();
  const Operations made = operations() - before;
  CHECK(made.downloads == 1);
  CHECK(made.waits == 1);
  for (std::size_t i = 0; i < taken.size(); ++i) {
    CAPTURE(i, late);
    CHECK(taken[i].values == std::vector<float>(5, static_cast<float>(i)));
  }
}

DEVICE_TEST_CASE("readers that were dropped are not called") {
  const AmbientScope scope(std::make_shared<Ledger>(device_memory()), 1);
  Taken dropped;
  Taken taken;
  dropped.from(ones(3));
  ambient().ledger->memory().drop_reads();
  taken.from(ones(4));
  ambient().ledger->memory().finish_reads();
  CHECK(dropped.values.empty());
  CHECK(taken.values == std::vector<float>(4, 1));
}

DEVICE_TEST_CASE("values larger than what is brought over together are read as well") {
  const AmbientScope scope(std::make_shared<Ledger>(device_memory()), 1);
  std::vector<Taken> taken(6);
  for (std::size_t i = 0; i < taken.size(); ++i) {
    taken[i].from(ones(std::int64_t{1} << (6 + 4 * i)));
  }
  ambient().ledger->memory().finish_reads();
  for (std::size_t i = 0; i < taken.size(); ++i) {
    CAPTURE(i);
    CHECK(taken[i].values == std::vector<float>(std::size_t{1} << (6 + 4 * i), 1));
  }
}

DEVICE_TEST_CASE("with late poison a block is poisoned before it is handed out again") {
  Ledger ledger(device_memory());
  ledger.set_poison(true);
  ledger.memory().set_late_poison(true);
  std::vector<void*> seen;
  int reused = 0;
  for (int i = 0; i < 400; ++i) {
    void* const block = ledger.allocate(100, Tag::temporaries);
    const std::vector<unsigned char> zeros(100);
    if (std::find(seen.begin(), seen.end(), block) != seen.end()) {
      ++reused;
      std::vector<unsigned char> got(100);
      copy_to_host(got.data(), block, 100);
      CHECK(got == std::vector<unsigned char>(100, 0xff));
    }
    seen.push_back(block);
    ledger.memory().copy_in(block, zeros.data(), 100);
    ledger.release(block, 100, Tag::temporaries);
  }
  if (cache_limit() > 0) CHECK(reused > 100);
}

DEVICE_TEST_CASE("the engine counts what reaches the device") {
  using Asked = std::int64_t (*)(int);
  const auto asked = reinterpret_cast<Asked>(dlsym(RTLD_DEFAULT, "rematch_emulator_asked"));
  if (asked == nullptr) SKIP("only the emulated device counts by itself");
  const auto reached = [&] {
    return Operations{asked(0), asked(1), asked(2), asked(3), asked(4), asked(5), asked(6)};
  };
  const AmbientScope scope(std::make_shared<Ledger>(device_memory()), 1);
  ambient().ledger->set_poison(true);
  const testing::DirectUpTo none(0);
  const Operations reached_before = reached();
  const Operations before = operations();
  for (int i = 0; i < 3; ++i) {
    const Tensor x = ones(64 << i);
    const Tensor copy = x.clone();
    Tensor large = Tensor::zeros({1 << 16}, DType::float32);
    const std::vector<float> values(1 << 16);
    large.copy_from_host(std::as_bytes(std::span(values)));
    const Tensor w = Tensor::ones({4, 4}, DType::float32);
    CHECK(linear(w, w, {}).to_vector()[0] == 4);
    CHECK(add(copy, x).at(0) == 2);
    synchronize();
  }
  const Operations counted = operations() - before;
  const Operations actual = reached() - reached_before;
  CHECK(counted == actual);
  CHECK(counted.products == 3);
  CHECK(counted.uploads == 3);
  // And one for each large copy, on a device that reads it from pageable memory.
  CHECK((counted.waits == 9 || counted.waits == 12));
}

DEVICE_TEST_CASE("a check of values sees a change of a tensor that another ledger holds") {
  const AmbientScope scope(std::make_shared<Ledger>(device_memory()), 5);
  Tensor w;
  {
    const AmbientScope other(std::make_shared<Ledger>(device_memory()), 5);
    w = ones(3);
  }
  Tensor x = ones(3);
  x.set_requires_grad(true);
  const auto f = [&](const Tensors& in) { return Tensors{mul(in[0], w)}; };
  const Tensor y = sum(checkpoint(f, {x}, {.determinism = DeterminismCheck::values})[0]);
  const bool changes = GENERATE(false, true);
  if (changes) {
    // Behind the back of everything that counts writes.
    const std::vector<float> others{1, 2, 3};
    w.storage()->memory().copy_in(w.storage()->data(), others.data(), w.bytes());
    CHECK_THROWS_AS(backward(y), CheckpointError);
  } else {
    CHECK_NOTHROW(backward(y));
  }
}

}  // namespace rematch::cuda
