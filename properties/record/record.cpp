#include "properties/record/record.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>

#include "properties/record/entries.h"
#include "properties/record/mixed.h"

namespace rematch {
namespace {

/// Order matters; every word is mixed in by a bijection, so no difference in one word is lost.
class Hasher {
 public:
  template <class... Fields>
  void add(Fields... fields) {
    (word(static_cast<std::uint64_t>(fields)), ...);
  }

  void add_bytes(std::span<const std::byte> bytes) {
    add(bytes.size());
    while (!bytes.empty()) {
      std::uint64_t w = 0;
      const std::size_t n = bytes.size() < sizeof(w) ? bytes.size() : sizeof(w);
      std::memcpy(&w, bytes.data(), n);
      word(w);
      bytes = bytes.subspan(n);
    }
  }

  void add_text(std::string_view text) { add_bytes(std::as_bytes(std::span(text))); }

  std::uint64_t value() const { return state_; }

 private:
  void word(std::uint64_t w) { state_ = mixed(state_ ^ w); }

  std::uint64_t state_ = 0;
};

// Bytes enter the hash as little-endian words.
static_assert(std::endian::native == std::endian::little);

/// Numbers come before texts.
template <class Entry>
void add_entry(Hasher& h, const Entry& entry) {
  entries::fields(
      [&]<class Value>(std::string_view, const Value& value) {
        if constexpr (!std::is_same_v<Value, std::string>) h.add(value);
      },
      entry);
  entries::fields(
      [&]<class Value>(std::string_view, const Value& value) {
        if constexpr (std::is_same_v<Value, std::string>) h.add_text(value);
      },
      entry);
}

template <class... Entries>
void add_lists(Hasher& h, const std::vector<Entries>&... lists) {
  const auto add_list = [&](const auto& list) {
    h.add(list.size());
    for (const auto& entry : list) add_entry(h, entry);
  };
  (add_list(lists), ...);
}

}  // namespace

void Record::clear() {
  observations.clear();
  data.clear();
  entries::lists([](std::string_view, auto& list) { list.clear(); }, *this);
  entries::scalars([](std::string_view, std::int64_t& value) { value = 0; }, *this);
  error.reset();
  trial.reset();
}

std::uint64_t Record::hash() const {
  Hasher h;
  h.add(observations.size());
  for (const Observation& o : observations) {
    add_entry(h, o);
    h.add(o.offset, o.bytes, o.shape.rank());
    for (const std::int64_t extent : o.shape.dims()) h.add(extent);
  }
  h.add_bytes(data);
  add_lists(h, draws, streams, bytes);
  h.add(live.size());
  for (const LiveReading& l : live) {
    // All fit: case/rules.cpp limits layers, steps and microbatches.
    const auto step = static_cast<std::uint64_t>(l.step);
    const auto microbatch = static_cast<std::uint64_t>(l.microbatch);
    const auto place = static_cast<std::uint64_t>(l.layer + 1) << 32 | microbatch >> 8 << 26 |
                       step >> 8 << 20 | static_cast<std::uint64_t>(l.event) << 16 |
                       (step & 0xff) << 8 | (microbatch & 0xff);
    h.add(place, static_cast<std::uint64_t>(l.execution) << 40 ^ l.entered, l.live, l.peak,
          l.offloaded);
  }
  add_lists(h, executions, hooks, grad_flags);
  h.add(peak_bytes, error.has_value());
  if (error) add_entry(h, *error);
  if (trial) add_entry(h, *trial);
  for (const PromiseReading& p : promises) {
    if (!p.broken.empty()) h.add_text(p.broken);
  }
  return h.value();
}

std::uint64_t Record::exact_hash() const {
  Hasher h;
  add_lists(h, draws, streams, executions, hooks, grad_flags);
  return h.value();
}

double element_of(DType dtype, const std::byte* at) {
  const auto read = [at]<class T>(T value) {
    std::memcpy(&value, at, sizeof(value));
    return static_cast<double>(value);
  };
  switch (dtype) {
    case DType::float32:
      return read(float());
    case DType::float64:
      return read(double());
    case DType::int32:
      return read(std::int32_t());
    case DType::uint8:
      return read(std::uint8_t());
    case DType::bfloat16:
      return read(math::BFloat16());
  }
  return 0;
}

namespace {

template <class T>
void canonical_nans_of(std::span<std::byte> values) {
  constexpr T kNan = std::numeric_limits<T>::quiet_NaN();
  for (std::size_t at = 0; at + sizeof(T) <= values.size(); at += sizeof(T)) {
    T value{};
    std::memcpy(&value, values.data() + at, sizeof(T));
    if (std::isnan(value)) std::memcpy(values.data() + at, &kNan, sizeof(T));
  }
}

}  // namespace

void canonical_nans(std::span<std::byte> values, std::size_t item) {
  if (item == sizeof(float)) canonical_nans_of<float>(values);
  if (item == sizeof(double)) canonical_nans_of<double>(values);
}

}  // namespace rematch
