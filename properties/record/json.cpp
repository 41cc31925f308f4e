#include "properties/record/json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "properties/case/json_fields.h"
#include "properties/record/base64.h"
#include "properties/record/entries.h"
#include "properties/record/json_reader.h"

namespace rematch {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kRecord = "record";
constexpr int kMostRecordNesting = 8;
constexpr std::size_t kMostRecordEntries = std::size_t{1} << 22;
/// Each may be looked for among those of another record.
constexpr std::size_t kMostObservations = std::size_t{1} << 16;
constexpr std::size_t kLongestRecordText = std::size_t{1} << 16;
/// Bytes and elements: so few that no sum of them overflows.
constexpr std::int64_t kMostMeasured = std::int64_t{1} << 40;

class Reader : public JsonFields {
 public:
  Reader(const Json& object, std::string path, const RecordBounds& bounds)
      : JsonFields(kRecord, object, std::move(path)), bounds_(bounds) {}

  void operator()(const char* name, bool& to) { read(name, to); }
  void operator()(const char* name, std::string& to) { read(name, to, kLongestRecordText); }
  void operator()(const char* name, int& to) {
    // -1 stands for none where it is the default.
    read_within(name, std::min(to, 0), most(name), to);
  }
  void operator()(const char* name, std::int64_t& to) {
    read_within(name, -kMostMeasured, kMostMeasured, to);
  }
  void operator()(const char* name, std::uint64_t& to) {
    const Json* value = find(name);
    if (value == nullptr) return;
    if (!value->is_string()) {
      to = integer<std::uint64_t>(*value, path(name));
      return;
    }
    const std::string& text = value->get_ref<const std::string&>();
    const bool hex = text.starts_with("0x") && text.size() > 2;
    const char* const end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data() + (hex ? 2 : 0), end, to, 16);
    if (!hex || error != std::errc() || rest != end) {
      fail(path(name), "an integer below 2^64, or \"0x\" and hex digits", show_json(*value));
    }
  }
  void operator()(const char* name, double& to) {
    const Json* value = find(name);
    if (value == nullptr) return;
    if (!value->is_string()) {
      if (!value->is_number()) fail(path(name), "a number", show_json(*value));
      to = value->get<double>();
      return;
    }
    const std::string& text = value->get_ref<const std::string&>();
    const char* const end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data(), end, to);
    if (error != std::errc() || rest != end || std::isfinite(to)) {
      fail(path(name), "a number, \"inf\", \"-inf\" or \"nan\"", show_json(*value));
    }
  }
  template <class Enum>
  requires std::is_enum_v<Enum>
  void operator()(const char* name, Enum& to) {
    const Json* value = find(name);
    if (value == nullptr) return;
    const auto& names = entries::names_of(Enum{});
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (value->is_string() && value->get_ref<const std::string&>() == names[i]) {
        to = static_cast<Enum>(i);
        return;
      }
    }
    std::string expected;
    for (const char* n : names) expected += (expected.empty() ? "one of " : ", ") + std::string(n);
    fail(path(name), expected, show_json(*value));
  }
  template <class Entry>
  void operator()(const char* name, std::vector<Entry>& to) {
    const Json* list = find(name);
    if (list == nullptr) return;
    need_array(kRecord, *list, path(name), kMostRecordEntries);
    to.reserve(list->size());
    for (std::size_t i = 0; i < list->size(); ++i) {
      Reader entry((*list)[i], indexed(path(name), i), bounds_);
      entries::fields(entry, to.emplace_back());
      entry.finish();
    }
  }
  template <class Entry>
  void operator()(const char* name, std::optional<Entry>& to) {
    const Json* value = find(name);
    if (value == nullptr) return;
    Reader entry(*value, path(name), bounds_);
    entries::fields(entry, to.emplace());
    entry.finish();
  }

 private:
  int most(std::string_view name) const {
    if (name == "layer") return bounds_.layers - 1;
    if (name == "step") return bounds_.steps - 1;
    if (name == "microbatch") return bounds_.microbatches - 1;
    if (name == "parameter") return bounds_.parameters - 1;
    return RecordBounds::kMostCounted;
  }
  template <class Integer>
  void read_within(const char* name, Integer least, Integer most, Integer& to) {
    const Json* value = find(name);
    if (value == nullptr) return;
    to = integer<Integer>(*value, path(name));
    if (to >= least && to <= most) return;
    fail(path(name), "an integer in " + std::to_string(least) + ".." + std::to_string(most),
         std::to_string(to));
  }

  const RecordBounds& bounds_;
};

Shape read_shape(const Reader& r, const Json& json) {
  const std::string path = r.path("shape");
  need_array(kRecord, json, path, Shape::kMaxRank);
  std::vector<std::int64_t> dims;
  for (std::size_t i = 0; i < json.size(); ++i) {
    dims.push_back(r.integer<std::int64_t>(json[i], indexed(path, i)));
  }
  try {
    return Shape(std::span<const std::int64_t>(dims));
  } catch (const std::invalid_argument& error) {
    r.fail(path, "extents from 0, at most 2^40 elements", error.what());
  }
}

bool same_place(const Observation& a, const Observation& b) {
  return a.quantity == b.quantity && a.step == b.step && a.microbatch == b.microbatch &&
         a.index == b.index && b.present && a.dtype == b.dtype && a.shape == b.shape;
}

/// The array of the same observation in `before`; nullptr when there is none of that shape. `at`:
/// where it is likely to be.
const Observation* same_before(const Observation& o, const Record& before, std::size_t at) {
  const std::vector<Observation>& all = before.observations;
  if (at < all.size() && same_place(o, all[at])) return &all[at];
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const auto& b) { return same_place(o, b); });
  return found == all.end() ? nullptr : &*found;
}

void read_observation(const Json& json, const std::string& path, const RecordBounds& bounds,
                      const Record* before, Record& record) {
  Reader r(json, path, bounds);
  Observation& o = record.observations.emplace_back();
  entries::fields(r, o);
  if (const Json* shape = r.find("shape")) o.shape = read_shape(r, *shape);
  bool as_before = false;
  r("as", as_before);
  std::optional<std::vector<std::byte>> bytes(std::in_place);
  if (as_before) {
    const Observation* same =
        before == nullptr ? nullptr : same_before(o, *before, record.observations.size() - 1);
    if (same == nullptr) {
      r.fail(r.path("as"), "an array that the run before had in this shape", "true");
    }
    const auto there = before->bytes_of(*same);
    bytes->assign(there.begin(), there.end());
  } else if (const Json* data = r.find("data")) {
    if (data->is_string()) {
      bytes = from_base64(data->get_ref<const std::string&>());
    } else {
      bytes.reset();
    }
    if (!bytes) r.fail(r.path("data"), "base64", show_json(*data));
  }
  const std::int64_t elements = o.present ? o.shape.elements() : 0;
  const auto expected = static_cast<std::uint64_t>(elements) * size_of(o.dtype);
  if (bytes->size() != expected) {
    r.fail(r.path("data"), std::to_string(expected) + " bytes", std::to_string(bytes->size()));
  }
  if (o.present) o.offset = record.data.size();
  o.bytes = bytes->size();
  record.data.insert(record.data.end(), bytes->begin(), bytes->end());
  r.finish();
}

}  // namespace

void read_record(const Json& json, const std::string& path, const RecordBounds& bounds,
                 const Record* before, Record& record) {
  record.clear();
  Reader r(json, path, bounds);
  r.need_version("format", kRecordFormat);
  if (const Json* list = r.find("observations")) {
    need_array(kRecord, *list, r.path("observations"), kMostObservations);
    for (std::size_t i = 0; i < list->size(); ++i) {
      read_observation((*list)[i], indexed(r.path("observations"), i), bounds, before, record);
    }
  }
  entries::lists(r, record);
  entries::scalars(r, record);
  r("error", record.error);
  r("trial", record.trial);
  r.finish();
}

void record_from_json(std::string_view text, Record& record) {
  read_record(parse_json(kRecord, text, kMaxRecordTextBytes, kMostRecordNesting), "", {}, nullptr,
              record);
}

}  // namespace rematch
