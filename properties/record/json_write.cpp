#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "properties/record/base64.h"
#include "properties/record/entries.h"
#include "properties/record/json.h"

namespace rematch {
namespace {

using Json = nlohmann::json;

static_assert(std::endian::native == std::endian::little);

constexpr std::uint64_t kExactInDouble = std::uint64_t{1} << 53;

/// Writes the fields of one object.
class RecordWriter {
 public:
  explicit RecordWriter(std::string& out) : out_(out) { out_ += '{'; }
  void close() { out_ += '}'; }

  /// Begins a field and returns where its value goes.
  std::string& field(std::string_view name) {
    if (!first_) out_ += ',';
    first_ = false;
    ((out_ += '"') += name) += "\":";
    return out_;
  }

  template <class Value>
  void put(std::string_view name, const Value& value) {
    std::string& out = field(name);
    if constexpr (std::is_same_v<Value, bool>) {
      out += value ? "true" : "false";
    } else if constexpr (std::is_enum_v<Value>) {
      ((out += '"') += entries::names_of(value)[static_cast<std::size_t>(value)]) += '"';
    } else if constexpr (std::is_integral_v<Value>) {
      integer(value);
    } else if constexpr (std::is_floating_point_v<Value>) {
      number(value);
    } else {
      out += Json(value).dump(-1, ' ', true, Json::error_handler_t::replace);
    }
  }

 private:
  template <class Integer>
  void integer(Integer value) {
    if constexpr (std::is_unsigned_v<Integer>) {
      if (value > kExactInDouble) {
        std::array<char, 16> digits{};
        const auto end = std::to_chars(digits.data(), digits.data() + 16, value, 16).ptr;
        ((out_ += "\"0x").append(digits.data(), end)) += '"';
        return;
      }
    }
    out_ += std::to_string(value);
  }

  /// JSON has no NaN and no infinity: those are text.
  void number(double value) {
    std::array<char, 40> digits{};
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
    const std::string_view text(digits.data(), static_cast<std::size_t>(end - digits.data()));
    if (std::isfinite(value)) {
      out_ += text;
    } else {
      ((out_ += '"') += text) += '"';
    }
  }

  std::string& out_;
  bool first_ = true;
};

template <class Entry>
void write_entry(const Entry& entry, std::string& out) {
  const Entry usual;
  RecordWriter writer(out);
  const auto put = [&](std::string_view name, const auto& value, const auto& usual_value) {
    if (value != usual_value) writer.put(name, value);
  };
  entries::fields(put, entry, usual);
  writer.close();
}

void write_observation(const Record& record, const Observation& o, std::string& out) {
  write_entry(o, out);
  out.pop_back();
  if (out.back() != '{') out += ',';
  out += "\"shape\":[";
  for (int i = 0; i < o.shape.rank(); ++i) {
    out += (i == 0 ? "" : ",") + std::to_string(o.shape[i]);
  }
  out += "],\"data\":\"";
  append_base64(record.bytes_of(o), out);
  out += "\"}";
}

}  // namespace

std::string to_json(const Record& record) {
  std::string out;
  RecordWriter writer(out);
  writer.put("format", kRecordFormat);
  if (!record.observations.empty()) {
    writer.field("observations") += '[';
    for (const Observation& o : record.observations) {
      if (&o != record.observations.data()) out += ',';
      write_observation(record, o, out);
    }
    out += ']';
  }
  const auto put_list = [&]<class Entry>(std::string_view name, const std::vector<Entry>& entries) {
    if (entries.empty()) return;
    writer.field(name) += '[';
    for (const Entry& entry : entries) {
      if (&entry != entries.data()) out += ',';
      write_entry(entry, out);
    }
    out += ']';
  };
  entries::lists(put_list, record);
  const auto put_scalar = [&](std::string_view name, std::int64_t value) {
    if (value != 0) writer.put(name, value);
  };
  entries::scalars(put_scalar, record);
  if (record.error) write_entry(*record.error, writer.field("error"));
  if (record.trial) write_entry(*record.trial, writer.field("trial"));
  writer.close();
  return out;
}

}  // namespace rematch
