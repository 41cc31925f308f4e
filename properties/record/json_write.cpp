#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "properties/record/base64.h"
#include "properties/record/entries.h"
#include "properties/record/json.h"

namespace rematch {
namespace {

using OrderedJson = nlohmann::ordered_json;

static_assert(std::endian::native == std::endian::little);

constexpr std::uint64_t kExactInDouble = std::uint64_t{1} << 53;

template <class Value>
OrderedJson value_json(const Value& value) {
  if constexpr (std::is_enum_v<Value>) {
    return entries::names_of(value)[static_cast<std::size_t>(value)];
  } else if constexpr (std::is_same_v<Value, std::uint64_t>) {
    return value > kExactInDouble ? OrderedJson(fmt::format("0x{:x}", value)) : OrderedJson(value);
  } else if constexpr (std::is_floating_point_v<Value>) {
    // JSON has no NaN and no infinity: those are text.
    return std::isfinite(value) ? OrderedJson(value) : OrderedJson(fmt::format("{}", value));
  } else {
    return value;
  }
}

/// The fields that are not as usual.
template <class Entry>
OrderedJson entry_json(const Entry& entry) {
  OrderedJson j = OrderedJson::object();
  const Entry usual;
  entries::fields(
      [&](const char* name, const auto& value, const auto& usual_value) {
        if (value != usual_value) j[name] = value_json(value);
      },
      entry, usual);
  return j;
}

OrderedJson observation_json(const Record& record, const Observation& o) {
  OrderedJson j = entry_json(o);
  j["shape"] = o.shape.dims();
  std::string data;
  append_base64(record.bytes_of(o), data);
  j["data"] = std::move(data);
  return j;
}

}  // namespace

std::string to_json(const Record& record) {
  OrderedJson j{{"format", kRecordFormat}};
  for (const Observation& o : record.observations) {
    j["observations"].push_back(observation_json(record, o));
  }
  const auto put_list = [&]<class Entry>(const char* name, const std::vector<Entry>& entries) {
    for (const Entry& entry : entries) j[name].push_back(entry_json(entry));
  };
  entries::lists(put_list, record);
  const auto put_scalar = [&](const char* name, std::int64_t value) {
    if (value != 0) j[name] = value;
  };
  entries::scalars(put_scalar, record);
  if (record.error) j["error"] = entry_json(*record.error);
  if (record.trial) j["trial"] = entry_json(*record.trial);
  return j.dump(-1, ' ', true, OrderedJson::error_handler_t::replace);
}

}  // namespace rematch
