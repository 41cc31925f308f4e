#include "properties/record/json.h"

#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "properties/case/json_fields.h"
#include "properties/record/base64.h"

namespace rematch {
namespace {

using Json = nlohmann::json;

static_assert(std::endian::native == std::endian::little);

constexpr std::string_view kWhat = "record";
constexpr int kMostNesting = 8;
constexpr std::size_t kMostEntries = std::size_t{1} << 22;
constexpr std::size_t kLongestText = std::size_t{1} << 16;
/// Steps, microbatches, layers and whatever else is counted.
constexpr int kMostCounted = 1 << 24;
constexpr std::uint64_t kExactInDouble = std::uint64_t{1} << 53;

// The names of enum values, in their order.
constexpr std::array kQuantities{"output",    "loss",   "input_gradient", "parameter_gradient",
                                 "parameter", "buffer", "reevaluation"};
constexpr std::array kMoments{"after_forward", "after_backward", "after_step"};
constexpr std::array kEvents{"layer", "node", "gradient", "forward", "backward", "graph", "step"};
constexpr std::array kDTypes{"float32", "float64", "int32", "uint8", "bfloat16"};
constexpr const auto& names_of(Quantity) { return kQuantities; }
constexpr const auto& names_of(Moment) { return kMoments; }
constexpr const auto& names_of(Event) { return kEvents; }
constexpr const auto& names_of(DType) { return kDTypes; }

// The fields of each kind of entry, for reader and writer alike.
template <class V, class E>
void place(V& v, E& e) {
  v("step", e.step);
  v("microbatch", e.pass);
}
template <class V>
void fields(V& v, Draw& d) {
  place(v, d);
  v("layer", d.layer);
  v("execution", d.execution);
  v("stream", d.stream);
  v("offset", d.offset);
  v("elements", d.elements);
  v("hash", d.hash);
}
template <class V>
void fields(V& v, LayerValue& l) {
  place(v, l);
  v("layer", l.layer);
  v("execution", l.execution);
  v("saved", l.saved);
  v("index", l.index);
  v("op", l.op);
  v("hash", l.hash);
  v("memory", l.memory);
  v("bytes", l.bytes);
}
template <class V>
void fields(V& v, StreamReading& s) {
  v("moment", s.moment);
  place(v, s);
  v("stream", s.stream);
  v("seed", s.seed);
  v("offset", s.offset);
}
template <class V>
void fields(V& v, ByteReading& b) {
  v("moment", b.moment);
  place(v, b);
  v("saved", b.saved);
  v("temporaries", b.temporaries);
  v("retained", b.retained);
  v("offloaded", b.offloaded);
}
template <class V>
void fields(V& v, LiveReading& l) {
  v("event", l.event);
  place(v, l);
  v("layer", l.layer);
  v("execution", l.execution);
  v("entered", l.entered);
  v("live", l.live);
  v("peak", l.peak);
  v("offloaded", l.offloaded);
}
template <class V>
void fields(V& v, ExecutionCount& e) {
  place(v, e);
  v("layer", e.layer);
  v("count", e.count);
  v("computed", e.computed);
}
template <class V>
void fields(V& v, HookCount& h) {
  place(v, h);
  v("parameter", h.parameter);
  v("count", h.count);
}
template <class V>
void fields(V& v, GradFlag& g) {
  place(v, g);
  v("layer", g.layer);
  v("output", g.output);
  v("requires_grad", g.requires_grad);
}
template <class V>
void fields(V& v, TimelinePoint& t) {
  v("live", t.live);
  v("saved", t.saved);
  v("layer", t.layer);
  v("phase", t.phase);
  v("execution", t.execution);
}
template <class V>
void fields(V& v, Agreement& a) {
  v("layer", a.layer);
  v("what", a.what);
  v("element", a.element);
  v("host", a.host);
  v("device", a.device);
  v("bound", a.bound);
  v("holds", a.holds);
}
template <class V>
void fields(V& v, TrialReading& t) {
  v("failed", t.failed);
  v("message", t.message);
  v("left_bytes", t.left_bytes);
  v("left_behind", t.left_behind);
}
template <class V>
void fields(V& v, RecordedError& e) {
  v("kind", e.kind);
  v("message", e.message);
}
/// But its array.
template <class V>
void fields(V& v, Observation& o) {
  v("quantity", o.quantity);
  place(v, o);
  v("index", o.index);
  v("present", o.present);
  v("requires_grad", o.requires_grad);
  v("dtype", o.dtype);
}
/// The lists of a record, but the observations.
template <class V, class R>
void lists(V& v, R& r) {
  v("draws", r.draws);
  v("values", r.values);
  v("streams", r.streams);
  v("bytes", r.bytes);
  v("live", r.live);
  v("executions", r.executions);
  v("hooks", r.hooks);
  v("grad_flags", r.grad_flags);
  v("timeline", r.timeline);
  v("agreements", r.agreements);
}
template <class V, class R>
void scalars(V& v, R& r) {
  v("peak_bytes", r.peak_bytes);
  v("reserved_bytes", r.reserved_bytes);
}

/// Writes the fields of one object, those that differ from `usual`.
class Writer {
 public:
  explicit Writer(std::string& out) : out_(out) { out_ += '{'; }
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
      ((out += '"') += names_of(value)[static_cast<std::size_t>(value)]) += '"';
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
  // fields() takes what a reader fills in: neither copy is changed here.
  Entry given = entry;
  Entry usual;
  std::array<const void*, 16> defaults{};
  std::size_t count = 0;
  const auto note = [&](std::string_view, const auto& value) { defaults[count++] = &value; };
  fields(note, usual);
  Writer writer(out);
  std::size_t next = 0;
  const auto put = [&]<class Value>(std::string_view name, const Value& value) {
    if (!(value == *static_cast<const Value*>(defaults[next++]))) writer.put(name, value);
  };
  fields(put, given);
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

class Reader : public JsonFields {
 public:
  Reader(const Json& object, std::string path) : JsonFields(kWhat, object, std::move(path)) {}

  void operator()(const char* name, bool& to) { read(name, to); }
  void operator()(const char* name, std::string& to) { read(name, to, kLongestText); }
  void operator()(const char* name, int& to) {
    read(name, to);
    if (to < -1 || to > kMostCounted) {
      fail(path(name), "an integer in -1.." + std::to_string(kMostCounted), std::to_string(to));
    }
  }
  void operator()(const char* name, std::int64_t& to) { read(name, to); }
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
    const auto& names = names_of(Enum{});
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
    need_array(kWhat, *list, path(name), kMostEntries);
    to.reserve(list->size());
    for (std::size_t i = 0; i < list->size(); ++i) {
      Reader entry((*list)[i], indexed(path(name), i));
      fields(entry, to.emplace_back());
      entry.finish();
    }
  }
  template <class Entry>
  void operator()(const char* name, std::optional<Entry>& to) {
    const Json* value = find(name);
    if (value == nullptr) return;
    Reader entry(*value, path(name));
    fields(entry, to.emplace());
    entry.finish();
  }
};

Shape read_shape(const Reader& r, const Json& json) {
  const std::string path = r.path("shape");
  need_array(kWhat, json, path, Shape::kMaxRank);
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

void read_observation(const Json& json, const std::string& path, Record& record) {
  Reader r(json, path);
  Observation& o = record.observations.emplace_back();
  fields(r, o);
  if (const Json* shape = r.find("shape")) o.shape = read_shape(r, *shape);
  const Json* data = r.find("data");
  std::optional<std::vector<std::byte>> bytes(std::in_place);
  if (data != nullptr) {
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

std::string to_json(const Record& record) {
  std::string out;
  Writer writer(out);
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
  lists(put_list, record);
  const auto put_scalar = [&](std::string_view name, std::int64_t value) {
    if (value != 0) writer.put(name, value);
  };
  scalars(put_scalar, record);
  if (record.error) write_entry(*record.error, writer.field("error"));
  if (record.trial) write_entry(*record.trial, writer.field("trial"));
  writer.close();
  return out;
}

void record_from_json(std::string_view text, Record& record) {
  const Json json = parse_json(kWhat, text, kMaxRecordTextBytes, kMostNesting);
  record.clear();
  Reader r(json, "");
  const int format = r.integer<int>(r.need("format"), "format");
  if (format != kRecordFormat) {
    r.fail("format", std::to_string(kRecordFormat), std::to_string(format));
  }
  if (const Json* list = r.find("observations")) {
    need_array(kWhat, *list, "observations", kMostEntries);
    for (std::size_t i = 0; i < list->size(); ++i) {
      read_observation((*list)[i], indexed("observations", i), record);
    }
  }
  lists(r, record);
  scalars(r, record);
  r("error", record.error);
  r("trial", record.trial);
  r.finish();
}

}  // namespace rematch
