#include "properties/record/record.h"

#include <bit>
#include <catch2/catch_test_macros.hpp>
#include <functional>
#include <limits>
#include <span>
#include <vector>

namespace rematch {
namespace {

Record sample() {
  Record r;
  r.data.resize(16);
  r.observations.push_back(
      {Quantity::loss, 0, 1, 2, true, true, DType::float32, Shape{2, 2}, 0, 16});
  r.draws.push_back({0, 1, 2, 3, 4, 5, 6});
  r.streams.push_back({Moment::after_step, 0, 1, 2, 3, 4});
  r.bytes.push_back({Moment::after_backward, 0, 1, 8, 16});
  r.live.push_back({Event::layer, 0, 1, 2, 3, 4, 5, 6, 7});
  r.executions.push_back({0, 1, 2, 3});
  r.hooks.push_back({0, 1, 2, 3});
  r.grad_flags.push_back({0, 1, 2, 0, true});
  r.peak_bytes = 100;
  r.error = RecordedError{"kind", "message"};
  return r;
}

TEST_CASE("equal records have equal hashes") { CHECK(sample().hash() == sample().hash()); }

TEST_CASE("the hash of a record changes with every field but the timeline") {
  const std::vector<std::function<void(Record&)>> changes = {
      [](Record& r) { r.data[15] = std::byte{1}; },
      [](Record& r) { r.data.push_back({}); },
      [](Record& r) { r.observations[0].quantity = Quantity::buffer; },
      [](Record& r) { r.observations[0].step = 1; },
      [](Record& r) { r.observations[0].microbatch = 0; },
      [](Record& r) { r.observations[0].index = 0; },
      [](Record& r) { r.observations[0].present = false; },
      [](Record& r) { r.observations[0].requires_grad = false; },
      [](Record& r) { r.observations[0].dtype = DType::int32; },
      [](Record& r) {
        r.observations[0].shape = Shape{4, 1};
      },
      [](Record& r) { r.observations.clear(); },
      [](Record& r) { r.draws[0].hash = 7; },
      [](Record& r) { r.draws[0].execution = 0; },
      [](Record& r) { r.streams[0].offset = 8; },
      [](Record& r) { r.bytes[0].saved = 0; },
      [](Record& r) { r.bytes[0].temporaries = 0; },
      [](Record& r) { r.bytes[0].retained = true; },
      [](Record& r) { r.live[0].event = Event::node; },
      [](Record& r) { r.live[0].step = 1; },
      [](Record& r) { r.live[0].microbatch = 0; },
      [](Record& r) { r.live[0].layer = -1; },
      [](Record& r) { r.live[0].execution = 0; },
      [](Record& r) { r.live[0].entered = 0; },
      [](Record& r) { r.live[0].live = 0; },
      [](Record& r) { r.live[0].peak = 0; },
      [](Record& r) { r.live[0].offloaded = 0; },
      [](Record& r) { r.executions[0].count = 1; },
      [](Record& r) { r.hooks[0].count = 1; },
      [](Record& r) { r.grad_flags[0].requires_grad = false; },
      [](Record& r) { r.peak_bytes = 101; },
      [](Record& r) { r.error->kind = "other"; },
      [](Record& r) { r.error->message = "other"; },
      [](Record& r) { r.error.reset(); },
  };
  for (std::size_t i = 0; i < changes.size(); ++i) {
    INFO("change " << i);
    Record changed = sample();
    changes[i](changed);
    CHECK(changed.hash() != sample().hash());
  }
  Record same = sample();
  same.timeline.push_back({1, 2, 3, Moment::after_forward, 4});
  CHECK(same.hash() == sample().hash());
}

TEST_CASE("the hash of a record tells one entry from the same entry in another list") {
  Record a;
  Record b;
  a.executions.push_back({0, 0, 1, 2});
  b.hooks.push_back({0, 0, 1, 2});
  CHECK(a.hash() != b.hash());
}

TEST_CASE("a cleared record is empty and keeps its memory") {
  Record r = sample();
  r.timeline.push_back({});
  const auto capacity = r.data.capacity();
  r.clear();
  CHECK(r.hash() == Record{}.hash());
  CHECK(r.timeline.empty());
  CHECK(r.data.capacity() == capacity);
}

template <class T>
std::span<std::byte> bytes_of(std::vector<T>& values) {
  return std::as_writable_bytes(std::span(values));
}

TEST_CASE("all NaNs of a record have the same bits, and no other value changes") {
  const float inf = std::numeric_limits<float>::infinity();
  std::vector<float> f{
      std::bit_cast<float>(0xffc00000U), std::bit_cast<float>(0x7fc12345U), -0.0F, inf, -inf, 1.5F};
  canonical_nans(bytes_of(f), sizeof(float));
  CHECK(std::bit_cast<std::uint32_t>(f[0]) == 0x7fc00000U);
  CHECK(std::bit_cast<std::uint32_t>(f[1]) == 0x7fc00000U);
  CHECK(std::bit_cast<std::uint32_t>(f[2]) == 0x80000000U);
  CHECK(f[3] == inf);
  CHECK(f[4] == -inf);
  CHECK(f[5] == 1.5F);

  std::vector<double> d{std::bit_cast<double>(0xfff8000000000001U), -0.0};
  canonical_nans(bytes_of(d), sizeof(double));
  CHECK(std::bit_cast<std::uint64_t>(d[0]) == 0x7ff8000000000000U);
  CHECK(std::bit_cast<std::uint64_t>(d[1]) == 0x8000000000000000U);

  std::vector<std::uint8_t> mask(8, 0xff);
  canonical_nans(bytes_of(mask), 1);
  CHECK(mask == std::vector<std::uint8_t>(8, 0xff));
}

}  // namespace
}  // namespace rematch
