#include "properties/record/record.h"

#include <bit>
#include <catch2/catch_test_macros.hpp>
#include <functional>
#include <limits>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "properties/record/entries.h"
#include "properties/testing/changer.h"

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

struct Anything {
  template <class T>
  operator T() const;  // NOLINT(google-explicit-constructor)
};
/// How many members an entry has: so many values initialize it, and no more.
template <class Entry, class... Values>
constexpr std::size_t members() {
  if constexpr (requires { Entry{Values{}..., Anything{}}; }) {
    return members<Entry, Values..., Anything>();
  }
  return sizeof...(Values);
}

TEST_CASE("every member of an entry stands in the list of its fields") {
  const auto check = []<class Entry>(std::string_view list, const Entry& entry) {
    std::size_t listed = 0;
    entries::fields([&](std::string_view, const auto&) { ++listed; }, entry);
    INFO(list);
    // LiveReading::stops is for forecasts alone.
    CHECK(members<Entry>() == listed + (std::is_same_v<Entry, LiveReading> ? 1 : 0));
  };
  const Record record;
  entries::lists(
      [&]<class Entry>(std::string_view name, const std::vector<Entry>&) { check(name, Entry{}); },
      record);
  check("error", RecordedError{});
  check("trial", TrialReading{});
}

/// Visits the lists of a record that enter its hash, and says whether the exact hash has them, too.
template <class Visit>
void for_each_hashed(Record& r, Visit visit) {
  visit("observations", r.observations, false);
  visit("bytes", r.bytes, false);
  visit("live", r.live, false);
  visit("draws", r.draws, true);
  visit("streams", r.streams, true);
  visit("executions", r.executions, true);
  visit("hooks", r.hooks, true);
  visit("grad_flags", r.grad_flags, true);
}

TEST_CASE("the hash of a record changes with every field but the timeline") {
  const std::uint64_t hash = sample().hash();
  const std::uint64_t exact = sample().exact_hash();
  // Numbers above a byte count, too.
  for (const int by : {1, 256, 4096}) {
    Record r = sample();
    for_each_hashed(r, [&](std::string_view list, auto& entries, bool is_exact) {
      for (int field = 0;; ++field) {
        const auto before = entries[0];
        testing::Changer changer{field, by};
        entries::fields(changer, entries[0]);
        if (changer.name.empty()) break;
        INFO(list << "." << changer.name << " by " << by);
        CHECK(r.hash() != hash);
        CHECK((r.exact_hash() != exact) == is_exact);
        entries[0] = before;
      }
      auto before = entries;
      entries.clear();
      INFO(list << " without entries");
      CHECK(r.hash() != hash);
      CHECK((r.exact_hash() != exact) == is_exact);
      entries.swap(before);
    });
  }
  const std::vector<std::function<void(Record&)>> changes = {
      [](Record& r) { r.data[15] = std::byte{1}; },
      [](Record& r) { r.data.push_back({}); },
      [](Record& r) {
        r.observations[0].shape = Shape{4, 1};
      },
      [](Record& r) { r.peak_bytes = 101; },
      [](Record& r) { r.error->kind = "other"; },
      [](Record& r) { r.error->message = "other"; },
      [](Record& r) { r.error.reset(); },
  };
  for (std::size_t i = 0; i < changes.size(); ++i) {
    INFO("change " << i);
    Record changed = sample();
    changes[i](changed);
    CHECK(changed.hash() != hash);
    CHECK(changed.exact_hash() == exact);
  }
  Record same = sample();
  same.timeline.push_back({1, 2, 3, Moment::after_forward, 4});
  CHECK(same.hash() == hash);
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
