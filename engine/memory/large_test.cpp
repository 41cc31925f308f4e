// Bytes past 2^31 and 2^32, counted for memory that is not there.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "engine/ambient/ambient_scope.h"
#include "engine/autograd/offload.h"
#include "engine/autograd/saved_tensor.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/memory/ledger.h"
#include "engine/ops/view.h"
#include "engine/tensor/tensor.h"
#include "engine/testing/fake_memory.h"

namespace rematch {
namespace {

using testing::FakeMemory;

constexpr std::int64_t kTwo31 = std::int64_t{1} << 31;
constexpr std::int64_t kTwo32 = std::int64_t{1} << 32;

constexpr Tag kTags[] = {Tag::parameters, Tag::state, Tag::inputs,
                         Tag::gradients,  Tag::saved, Tag::temporaries};

struct Block {
  void* address;
  std::int64_t bytes;
  Tag tag;
};

/// A ledger of memory that is not there, as the ambient one.
class LargeMemory {
 public:
  LargeMemory() : scope_(std::make_shared<Ledger>(std::make_unique<FakeMemory>(notes_))) {}
  ~LargeMemory() { CHECK(notes_.in_use == 0); }
  LargeMemory(const LargeMemory&) = delete;
  LargeMemory& operator=(const LargeMemory&) = delete;

  static Ledger& ledger() { return *ambient().ledger; }
  FakeMemory::Notes& notes() { return notes_; }

 private:
  FakeMemory::Notes notes_;
  AmbientScope scope_;
};

}  // namespace

TEST_CASE_METHOD(LargeMemory, "a ledger's figures are exact past 2^32 bytes") {
  const std::int64_t bytes =
      GENERATE(kTwo31 - 1, kTwo31, kTwo32 - 1, kTwo32, kTwo32 + 1, (std::int64_t{1} << 53) + 1);
  ledger().record_timeline(true);
  std::vector<Block> blocks;
  std::map<Tag, std::int64_t> by_tag;
  std::int64_t live = 0;
  const auto check = [&] {
    CHECK(ledger().live() == live);
    CHECK(ledger().peak() >= live);
    for (const Tag tag : kTags) CHECK(ledger().live(tag) == by_tag[tag]);
    const LedgerEvent& event = ledger().timeline().back();
    CHECK(event.live == live);
    CHECK(event.saved == by_tag[Tag::saved]);
    CHECK(notes().in_use == live);
  };
  std::int64_t more = 0;
  for (const Tag tag : kTags) {
    blocks.push_back({ledger().allocate(bytes + more, tag), bytes + more, tag});
    CHECK(ledger().timeline().back().bytes == bytes + more);
    by_tag[tag] += bytes + more;
    live += bytes + more++;
    check();
  }
  CHECK(ledger().peak() == live);
  CHECK(ledger().total() == live);
  CHECK(ledger().reserved() == live);
  for (Block& block : blocks) {
    const Tag to = block.tag == Tag::saved ? Tag::temporaries : Tag::saved;
    ledger().retag(block.bytes, block.tag, to);
    by_tag[block.tag] -= block.bytes;
    by_tag[block.tag = to] += block.bytes;
    check();
  }
  const std::int64_t peak = live;
  for (const Block& block : blocks) {
    ledger().release(block.address, block.bytes, block.tag);
    by_tag[block.tag] -= block.bytes;
    live -= block.bytes;
    check();
    ledger().reset_peak();
    CHECK(ledger().peak() == live);
  }
  CHECK(live == 0);
  CHECK(ledger().total() == peak);
}

TEST_CASE_METHOD(LargeMemory, "a limit past 2^32 bytes holds to the byte") {
  const std::int64_t limit = GENERATE(kTwo31, kTwo32, 3 * kTwo32 + 5);
  ledger().set_limit(limit);
  void* const most = ledger().allocate(limit - 1, Tag::temporaries);
  void* const last = ledger().allocate(1, Tag::temporaries);
  CHECK_THROWS_AS(ledger().allocate(1, Tag::temporaries), OutOfMemory);
  ledger().release(last, 1, Tag::temporaries);
  CHECK_THROWS_AS(ledger().allocate(2, Tag::temporaries), OutOfMemory);
  ledger().release(most, limit - 1, Tag::temporaries);
  CHECK_THROWS_AS(ledger().allocate(limit + 1, Tag::temporaries), OutOfMemory);
  CHECK_THROWS_AS(ledger().allocate(limit + kTwo32, Tag::temporaries), OutOfMemory);
}

TEST_CASE_METHOD(LargeMemory, "a tensor past 2^32 bytes is counted, tagged and copied whole") {
  const Shape shape{5, std::int64_t{1} << 20, 1 << 10};
  const std::int64_t bytes = 8 * 5 * (std::int64_t{1} << 30);
  const Tensor x = Tensor::empty(shape, DType::float64, Tag::inputs);
  CHECK(x.elements() == bytes / 8);
  CHECK(x.bytes() == bytes);
  CHECK(ledger().live(Tag::inputs) == bytes);
  const Tensor copy = x.clone();
  CHECK(notes().copied == std::vector{bytes});
  CHECK(ledger().peak() == 2 * bytes);
  ledger().set_poison(true);
  {
    SavedTensor saved;
    saved.save(copy.clone());
    CHECK(ledger().live(Tag::saved) == bytes);
    CHECK(ledger().live(Tag::temporaries) == bytes);
  }
  CHECK(ledger().live(Tag::saved) == 0);
  CHECK(notes().poisoned == std::vector{bytes});
  CHECK(reshape(x, {bytes / 8}).bytes() == bytes);
  CHECK(flatten(x).shape() == Shape{5, std::int64_t{1} << 30});
  ledger().set_poison(false);
}

TEST_CASE_METHOD(LargeMemory, "a checkpoint of inputs past 2^32 bytes holds them, and no more") {
  const bool reentrant = GENERATE(false, true);
  const std::int64_t n = 3 * kTwo32;
  const Tensor x = Tensor::empty({n}, DType::float32).set_requires_grad(true);
  // Nothing may compute here: the function only views.
  const Tensors y = checkpoint(
      [](const Tensors& in) -> Tensors {
        return {reshape(in[0], {3, kTwo32})};
      },
      {x, Tensor::empty({n}, DType::float32)}, {.reentrant = reentrant});
  // The graph of the other variant saves nothing, so that its frame is gone.
  CHECK(ledger().live(Tag::saved) == (reentrant ? 8 * n : 0));
  CHECK(ledger().peak() == 8 * n);
}

TEST_CASE_METHOD(LargeMemory, "a tensor past 2^32 bytes is offloaded and brought back whole") {
  FakeMemory::Notes host_notes;
  const auto host = std::make_shared<Ledger>(std::make_unique<FakeMemory>(host_notes));
  const std::int64_t bytes = 5 * kTwo32;
  {
    Offload offload(host);
    SavedTensor saved;
    {
      const OffloadScope scope(offload);
      saved.save(Tensor::empty({5, kTwo32}, DType::uint8));
    }
    CHECK(host->live(Tag::saved) == bytes);
    CHECK(ledger().live() == 0);
    CHECK(saved.get("mine").bytes() == bytes);
  }
  CHECK(host_notes.copied == std::vector{bytes, bytes});
  CHECK(host->live() == 0);
}

}  // namespace rematch
