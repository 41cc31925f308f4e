#include "engine/cuda/offload.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <future>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "engine/ambient/ambient_scope.h"
#include "engine/autograd/backward.h"
#include "engine/autograd/offload.h"
#include "engine/backend/device.h"
#include "engine/checkpoint/sequential.h"
#include "engine/cuda/graph.h"
#include "engine/cuda/testing/device.h"
#include "engine/ops/activation.h"
#include "engine/ops/arithmetic.h"
#include "engine/ops/dropout.h"
#include "engine/ops/linear.h"

namespace rematch::cuda {
namespace {

using testing::blocks_are_kept;
using testing::need_device;
using testing::need_kept_blocks;
using Bytes = std::vector<std::byte>;

constexpr std::int64_t kLarge = 64 << 20;

/// Holds up the thread's stream until it is opened. A test that waits for the stream before that
/// would wait for ever: then the gate opens itself, late, and the test fails.
class Gate {
 public:
  Gate() { check(cudaLaunchHostFunc(stream(), wait, &opened_), "cudaLaunchHostFunc"); }
  ~Gate() { open(); }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  void open() {
    if (done_) return;
    done_ = true;
    open_.set_value();
    CHECK(cudaStreamSynchronize(stream()) == cudaSuccess);
    CHECK_FALSE(opened_.late);
  }

 private:
  struct Opened {
    std::shared_future<void> future;
    bool late = false;
  };
  static void wait(void* opened) {
    auto& mine = *static_cast<Opened*>(opened);
    mine.late = mine.future.wait_for(std::chrono::seconds(30)) == std::future_status::timeout;
  }

  std::promise<void> open_;
  Opened opened_{open_.get_future().share()};
  bool done_ = false;
};

Bytes bytes_of(const Tensor& t) {
  Bytes bytes(static_cast<std::size_t>(t.bytes()));
  t.copy_to_host(bytes);
  return bytes;
}

Tensor device_values(const Shape& shape, std::uint64_t seed, Tag tag) {
  const std::vector<float> v = testing::values<float>(shape.elements(), seed);
  Tensor t = Tensor::from(std::vector<double>(v.begin(), v.end()), shape);
  t.storage()->set_tag(tag);
  return t;
}

enum class Plan { plain, reentrant, non_reentrant };

/// Four layers, stored or in two segments.
struct Training {
  explicit Training(Plan p, std::int64_t width = 40) : plan(p) {
    x = device_values({24, width}, 1, Tag::inputs).set_requires_grad(true);
    for (std::uint64_t i = 0; i < 4; ++i) {
      w.push_back(device_values({width, width}, 2 + i, Tag::parameters).set_requires_grad(true));
    }
  }
  /// `offload` may be nullptr.
  void step(Offload* offload) {
    x.set_grad({});
    for (Tensor& each : w) each.set_grad({});
    Tensor y;
    {
      std::optional<OffloadScope> scope;
      if (offload != nullptr) scope.emplace(*offload);
      y = forward();
    }
    backward(y);
  }
  std::vector<Bytes> gradients() const {
    std::vector<Bytes> all{bytes_of(x.grad())};
    for (const Tensor& each : w) all.push_back(bytes_of(each.grad()));
    return all;
  }

  Plan plan;
  Tensor x;
  Tensors w;

 private:
  Tensor forward() {
    std::vector<Function> layers;
    for (std::size_t i = 0; i < 4; ++i) {
      layers.emplace_back([this, i](const Tensors& in) -> Tensors {
        Tensor y = linear(in[0], w[i], {});
        return {dropout(i == 1 ? relu_(y) : tanh(y), 0.25)};
      });
    }
    CheckpointOptions options;
    options.reentrant = plan == Plan::reentrant;
    const Tensors y = plan == Plan::plain ? compose(layers)({x})
                                          : checkpoint_sequential(
                                                layers, 2, {x}, LastSegment::checkpointed, options);
    return sum(mul(y[0], y[0]));
  }
};

}  // namespace

TEST_CASE("pinned blocks are aligned, apart, kept for reuse, and given back", "[gpu][offload]") {
  need_device();
  Ledger ledger(pinned_memory());
  CHECK(ledger.device() == Device::cpu);
  CHECK(ledger.reserved() == 0);
  std::vector<std::pair<void*, std::int64_t>> blocks;
  for (const std::int64_t bytes : {1, 63, 64, 65, 511, 513, 4097, 100000, 3000000}) {
    void* const block = ledger.allocate(bytes, Tag::saved);
    CHECK(reinterpret_cast<std::uintptr_t>(block) % 64 == 0);
    std::memset(block, static_cast<int>(blocks.size() + 1), static_cast<std::size_t>(bytes));
    blocks.emplace_back(block, bytes);
  }
  CHECK(ledger.reserved() >= ledger.live());
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const auto [block, bytes] = blocks[i];
    const std::vector<unsigned char> want(static_cast<std::size_t>(bytes),
                                          static_cast<unsigned char>(i + 1));
    CHECK(std::memcmp(block, want.data(), want.size()) == 0);
    ledger.release(block, bytes, Tag::saved);
  }
  if (blocks_are_kept()) {
    void* const again = ledger.allocate(3000000, Tag::saved);
    CHECK(again == blocks.back().first);
    ledger.release(again, 3000000, Tag::saved);
  }
  ledger.trim();
  CHECK(ledger.reserved() == 0);
}

TEST_CASE("pinned memory that a captured step poisons changes when the graph runs",
          "[gpu][offload]") {
  need_device();
  const auto memory = pinned_memory();
  constexpr std::int64_t kBytes = 1024;
  void* const block = memory->allocate(kBytes);
  const auto holds = [&](int byte) {
    check(cudaDeviceSynchronize(), "synchronize");
    const auto* const first = static_cast<const unsigned char*>(block);
    return std::all_of(first, first + kBytes, [=](unsigned char b) { return b == byte; });
  };
  std::memset(block, 1, kBytes);
  Graph graph(ambient().streams, [&] { memory->poison(block, kBytes); });
  CHECK(holds(1));
  graph.run();
  CHECK(holds(0xff));
  memory->release(block, kBytes);
}

TEST_CASE("pinned memory that was freed reads as NaN when poisoned", "[gpu][offload]") {
  need_device();
  need_kept_blocks();
  Ledger ledger(pinned_memory());
  ledger.set_poison(true);
  void* const block = ledger.allocate(64, Tag::saved);
  std::memset(block, 7, 64);
  ledger.release(block, 64, Tag::saved);
  REQUIRE(ledger.allocate(64, Tag::saved) == block);
  std::vector<unsigned char> found(64);
  ledger.memory().copy_out(found.data(), block, 64);
  CHECK(found == std::vector<unsigned char>(64, 0xff));
  ledger.release(block, 64, Tag::saved);
}

TEST_CASE("a copy out runs beside later work, after earlier work, and is waited for at its end",
          "[gpu][offload]") {
  need_device();
  Ledger device(device_memory());
  Ledger host(pinned_memory());
  void* const block = device.allocate(kLarge, Tag::temporaries);
  void* const pinned = host.allocate(kLarge, Tag::saved);
  check(cudaMemsetAsync(block, 5, kLarge, stream()), "memset");
  synchronize();
  {
    Gate before;
    check(cudaMemsetAsync(block, 7, kLarge, stream()), "memset");
    begin_copy_out(pinned, block, kLarge);
    CHECK(cudaStreamQuery(context().copies) == cudaErrorNotReady);
    (void)cudaGetLastError();
    before.open();
    finish_copy(block);
  }
  synchronize();
  CHECK(static_cast<const unsigned char*>(pinned)[kLarge - 1] == 7);
  begin_copy_out(pinned, block, kLarge);
  {
    Gate later;
    // Were it not beside, this would wait for the gate.
    CHECK(cudaStreamSynchronize(context().copies) == cudaSuccess);
    finish_copy(block);
    check(cudaMemsetAsync(block, 6, kLarge, stream()), "memset");
  }
  synchronize();
  CHECK(static_cast<const unsigned char*>(pinned)[kLarge - 1] == 7);
  host.release(pinned, kLarge, Tag::saved);
  device.release(block, kLarge, Tag::temporaries);
}

TEST_CASE("what was copied out comes back though block after block is used again",
          "[gpu][offload]") {
  need_device();
  Ledger device(device_memory());
  Ledger host(pinned_memory());
  host.set_poison(true);
  device.set_poison(true);
  std::vector<void*> back;
  for (int round = 1; round <= 6; ++round) {
    void* const block = device.allocate(kLarge, Tag::temporaries);
    void* const pinned = host.allocate(kLarge, Tag::saved);
    check(cudaMemsetAsync(block, round, kLarge, stream()), "memset");
    begin_copy_out(pinned, block, kLarge);
    finish_copy(block);
    // Poisoned at once, and used by the next round or right here.
    device.release(block, kLarge, Tag::temporaries);
    void* const got = device.allocate(kLarge, Tag::temporaries);
    begin_copy_back(got, pinned, kLarge);
    finish_copy(got);
    host.release(pinned, kLarge, Tag::saved);
    back.push_back(got);
  }
  for (std::size_t i = 0; i < back.size(); ++i) {
    std::vector<unsigned char> found(kLarge);
    copy_to_host(found.data(), back[i], kLarge);
    CHECK(found == std::vector<unsigned char>(kLarge, static_cast<unsigned char>(i + 1)));
    device.release(back[i], kLarge, Tag::temporaries);
  }
}

TEST_CASE("several copies out are under way at a time, and each is waited for alone",
          "[gpu][offload]") {
  need_device();
  Ledger device(device_memory());
  Ledger host(pinned_memory());
  std::vector<std::pair<void*, void*>> copies;
  for (int i = 0; i < 3; ++i) {
    void* const block = device.allocate(4096, Tag::temporaries);
    void* const pinned = host.allocate(4096, Tag::saved);
    check(cudaMemsetAsync(block, i + 1, 4096, stream()), "memset");
    begin_copy_out(pinned, block, 4096);
    copies.emplace_back(block, pinned);
  }
  CHECK(context().copying.size() == 3);
  finish_copy(copies[0].first);
  CHECK(context().copying.size() == 2);
  // Of one that is not under way there is nothing to wait for.
  finish_copy(copies[0].first);
  device.memory().before_write(copies[2].first);
  CHECK(context().copying.size() == 1);
  finish_copies();
  CHECK(context().copying.empty());
  synchronize();
  for (std::size_t i = 0; i < copies.size(); ++i) {
    CHECK(static_cast<const unsigned char*>(copies[i].second)[4095] == i + 1);
    host.release(copies[i].second, 4096, Tag::saved);
    device.release(copies[i].first, 4096, Tag::temporaries);
  }
}

TEST_CASE("a copy back runs beside later work until it is finished", "[gpu][offload]") {
  need_device();
  Ledger device(device_memory());
  Ledger host(pinned_memory());
  void* const block = device.allocate(4096, Tag::temporaries);
  void* const pinned = host.allocate(4096, Tag::saved);
  std::memset(pinned, 9, 4096);
  // What is queued before would overwrite it.
  check(cudaMemsetAsync(block, 1, 4096, stream()), "memset");
  begin_copy_back(block, pinned, 4096);
  {
    Gate later;
    // Were it not beside, this would wait for the gate.
    CHECK(cudaStreamSynchronize(context().copies) == cudaSuccess);
  }
  finish_copy(block);
  std::vector<unsigned char> found(4096);
  copy_to_host(found.data(), block, 4096);
  CHECK(found == std::vector<unsigned char>(4096, 9));
  host.release(pinned, 4096, Tag::saved);
  device.release(block, 4096, Tag::temporaries);
}

TEST_CASE("a write in place waits for the copy out of what it overwrites", "[gpu][offload]") {
  need_device();
  const AmbientScope scope(std::make_shared<Ledger>(device_memory()));
  Tensor x = Tensor::full({kLarge / 4}, DType::float32, 0.5).set_requires_grad(true);
  const auto gradient = [&](bool in_place) {
    x.set_grad({});
    Offload offload;
    Tensor y;
    {
      const OffloadScope packing(offload);
      y = tanh(x);
      y = in_place ? scale_(y, 2) : scale(y, 2);
    }
    backward(sum(y));
    return bytes_of(x.grad());
  };
  const Bytes want = gradient(false);
  CHECK(gradient(true) == want);
}

TEST_CASE("a step with offload has the bits of one without, again and again", "[gpu][offload]") {
  need_device();
  const OffloadOptions options = GENERATE(OffloadOptions{}, OffloadOptions{3, 2});
  const Plan plan = GENERATE(Plan::plain, Plan::reentrant, Plan::non_reentrant);
  const std::int64_t width = GENERATE(40, 1500);
  CAPTURE(static_cast<int>(plan), width);
  const auto ledger = std::make_shared<Ledger>(device_memory());
  ledger->set_poison(true);
  const AmbientScope scope(ledger, 5);
  Offload offload(options);
  offload.ledger().set_poison(true);
  Training training(plan, width);
  training.step(nullptr);
  const Streams start = ambient().streams;
  for (int i = 0; i < 3; ++i) {
    ambient().streams = start;
    training.step(nullptr);
    const std::vector<Bytes> want = training.gradients();
    ambient().streams = start;
    training.step(&offload);
    CHECK(training.gradients() == want);
    CHECK(offload.ledger().live() == 0);
    CHECK(offload.ledger().peak() > 0);
  }
}

TEST_CASE("an offloaded step leaves the same trace in both ledgers on device and CPU",
          "[gpu][offload]") {
  need_device();
  const OffloadOptions options = GENERATE(OffloadOptions{}, OffloadOptions{3, 2});
  const Plan plan = GENERATE(Plan::plain, Plan::reentrant, Plan::non_reentrant);
  std::vector<std::vector<LedgerEvent>> traces;
  for (const Device device : {Device::cpu, Device::cuda}) {
    const auto ledger = std::make_shared<Ledger>(memory_of(device));
    const AmbientScope scope(ledger, 5);
    Offload offload(options);
    ledger->record_timeline(true);
    offload.ledger().record_timeline(true);
    {
      Training training(plan);
      training.step(&offload);
    }
    CHECK(ledger->live() == 0);
    traces.push_back(ledger->timeline());
    traces.push_back(offload.ledger().timeline());
  }
  for (std::size_t i = 0; i < 2; ++i) {
    CAPTURE(i);
    REQUIRE(traces[i].size() == traces[i + 2].size());
    for (std::size_t j = 0; j < traces[i].size(); ++j) {
      const LedgerEvent& a = traces[i][j];
      const LedgerEvent& b = traces[i + 2][j];
      CAPTURE(j);
      CHECK((a.kind == b.kind && a.tag == b.tag && a.bytes == b.bytes));
      CHECK((a.live == b.live && a.saved == b.saved));
    }
  }
}

TEST_CASE("no part of an offloaded step waits for the device", "[gpu][offload]") {
  need_device();
  need_kept_blocks();
  const OffloadOptions options = GENERATE(OffloadOptions{}, OffloadOptions{3, 2});
  const Plan plan = GENERATE(Plan::plain, Plan::reentrant, Plan::non_reentrant);
  const AmbientScope scope(std::make_shared<Ledger>(device_memory()), 5);
  Offload offload(options);
  Training training(plan);
  // Blocks are allocated and algorithms chosen in the first.
  training.step(&offload);
  training.step(&offload);
  synchronize();
  Gate gate;
  training.step(&offload);
  gate.open();
}

TEST_CASE("an offloaded step can be captured, whether its scope begins within or before",
          "[gpu][offload]") {
  need_device();
  need_kept_blocks();
  const OffloadOptions options = GENERATE(OffloadOptions{}, OffloadOptions{3, 2});
  const Plan plan = GENERATE(Plan::plain, Plan::reentrant, Plan::non_reentrant);
  const bool before = GENERATE(false, true);
  CAPTURE(static_cast<int>(plan), before);
  const AmbientScope scope(std::make_shared<Ledger>(device_memory()), 5);
  Offload offload(options);
  Training training(plan);
  // With a scope around, a copy is under way when the capture begins, and another when it ends.
  std::optional<OffloadScope> around;
  if (before) around.emplace(offload);
  Offload* const within = before ? nullptr : &offload;
  training.step(within);
  training.step(within);
  const Streams start = ambient().streams;
  training.step(within);
  const std::vector<Bytes> want = training.gradients();
  ambient().streams = start;
  Graph graph(ambient().streams, [&] { training.step(within); });
  for (int i = 0; i < 2; ++i) {
    ambient().streams = start;
    graph.run();
    CHECK(training.gradients() == want);
  }
}

TEST_CASE("a capture may end while a copy out is under way", "[gpu][offload]") {
  need_device();
  constexpr std::int64_t kBytes = 4096;
  const AmbientScope scope(std::make_shared<Ledger>(device_memory()), 5);
  Ledger host(pinned_memory());
  void* const block = ambient().ledger->allocate(kBytes, Tag::temporaries);
  void* const pinned = host.allocate(kBytes, Tag::saved);
  check(cudaMemsetAsync(block, 3, kBytes, stream()), "memset");
  Graph graph(ambient().streams, [&] { begin_copy_out(pinned, block, kBytes); });
  graph.run();
  synchronize();
  CHECK(static_cast<const unsigned char*>(pinned)[kBytes - 1] == 3);
  host.release(pinned, kBytes, Tag::saved);
  ambient().ledger->release(block, kBytes, Tag::temporaries);
}

TEST_CASE("a host without room refuses, and the device goes on", "[gpu][offload]") {
  need_device();
  const AmbientScope scope(std::make_shared<Ledger>(device_memory()), 5);
  Offload offload;
  Training training(Plan::non_reentrant);
  training.step(nullptr);
  const std::int64_t live = ambient().ledger->live();
  offload.ledger().fail_allocation(1);
  CHECK_THROWS_AS(training.step(&offload), OutOfMemory);
  CHECK(offload.ledger().live() == 0);
  CHECK(cudaPeekAtLastError() == cudaSuccess);
  training.step(&offload);
  CHECK(ambient().ledger->live() == live);
}

}  // namespace rematch::cuda
