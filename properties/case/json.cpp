#include "properties/case/json.h"

#include <charconv>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "properties/case/geometry.h"
#include "properties/case/json_fields.h"
#include "properties/case/names.h"
#include "properties/case/nearest.h"
#include "properties/layers/custom_layer.h"
#include "properties/layers/layer.h"

namespace rematch {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kCase = "case";

[[noreturn]] void fail(const std::string& path, const std::string& expected,
                       const std::string& got) {
  json_fail(kCase, path, expected, got);
}

class Fields : public JsonFields {
 public:
  Fields(const Json& object, std::string path) : JsonFields(kCase, object, std::move(path)) {}
};

template <class S>
void read_fields(Fields& f, S& s);

/// A whole object: its fields and no others.
template <class S>
void read_object(const Json& json, const std::string& path, S& s) {
  Fields f(json, path);
  read_fields(f, s);
  f.finish();
}

template <class Item, class Read>
void read_array(const Json& json, const std::string& path, std::size_t longest,
                std::vector<Item>& to, Read read) {
  need_array(kCase, json, path, longest);
  to.reserve(json.size());
  for (std::size_t i = 0; i < json.size(); ++i) read(json[i], indexed(path, i), to.emplace_back());
}

void read_value(const Fields& f, const Json& json, const std::string& path, ValueRef& v) {
  if (!json.is_array() || json.size() != 2) fail(path, "[layer, output]", show_json(json));
  v = {f.integer<int>(json[0], indexed(path, 0)), f.integer<int>(json[1], indexed(path, 1))};
}

// One function for each type of field.

template <class Value>
void read_field(const Fields& f, const Json& json, const std::string& path, Value& to) {
  if constexpr (std::is_same_v<Value, bool> || std::is_floating_point_v<Value>) {
    f.scalar(json, path, to);
  } else if constexpr (std::is_enum_v<Value>) {
    std::string expected;
    for (const auto& [value, name] : NamesOf<Value>::list) {
      if (json.is_string() && json.get_ref<const std::string&>() == name) {
        to = value;
        return;
      }
      // Old names are taken, but not recommended.
      if (name != name_of(value)) continue;
      expected += (expected.empty() ? "one of " : ", ") + std::string(name);
    }
    fail(path, expected, show_json(json));
  } else if constexpr (std::is_integral_v<Value>) {
    to = f.integer<Value>(json, path);
  } else {
    read_object(json, path, to);
  }
}

/// Files that were written before say whether it is a dictionary.
void read_field(const Fields& f, const Json& json, const std::string& path, Arguments& to) {
  if (!json.is_boolean()) return read_field<Arguments>(f, json, path, to);
  to = json.get<bool>() ? Arguments::dictionary : Arguments::tensors;
}

/// One operand may stand without the brackets of the list.
void read_field(const Fields& f, const Json& json, const std::string& path,
                std::vector<ValueRef>& to) {
  if (json.is_array() && !json.empty() && json[0].is_array()) {
    return read_array(
        json, path, kMaxOperands, to,
        [&](const Json& item, const std::string& at, ValueRef& v) { read_value(f, item, at, v); });
  }
  read_value(f, json, path, to.emplace_back());
}

void read_field(const Fields&, const Json& json, const std::string& path,
                std::vector<KeepSpec>& to) {
  const auto read = [](const Json& item, const std::string& at, KeepSpec& keep) {
    Fields spec(item, at);
    const Json& op = spec.need("op");
    const auto known = op.is_string() ? op_named(op.get_ref<const std::string&>()) : std::nullopt;
    if (!known) fail(spec.path("op"), "an op that computes", show_json(op));
    keep.op = *known;
    spec.read("index", keep.index);
    spec.finish();
  };
  read_array(json, path, kMaxKeep, to, read);
}

void read_field(const Fields&, const Json& json, const std::string& path,
                std::vector<SegmentSpec>& to) {
  read_array(
      json, path, static_cast<std::size_t>(kMaxLayers), to,
      [](const Json& item, const std::string& at, SegmentSpec& s) { read_object(item, at, s); });
}

void read_field(const Fields&, const Json& json, const std::string& path,
                std::optional<SequentialSpec>& to) {
  read_object(json, path, to.emplace());
}

void read_field(const Fields& f, const Json& json, const std::string& path,
                std::vector<std::int64_t>& to) {
  read_array(json, path, Shape::kMaxRank, to,
             [&](const Json& item, const std::string& at, std::int64_t& extent) {
               extent = f.integer<std::int64_t>(item, at);
             });
}

void read_field(const Fields& f, const Json& json, const std::string& path, Options& to) {
  constexpr std::size_t kMostOptions = 64;
  if (!json.is_object() || json.size() > kMostOptions) {
    fail(path, "an object of at most " + std::to_string(kMostOptions) + " fields", show_json(json));
  }
  for (const auto& [name, value] : json.items()) {
    std::string key;
    f.line(Json(name), path, key);
    f.line(value, path + "." + key, to[key]);
  }
}

LayerKind read_kind(const Json* json, const std::string& path) {
  if (json == nullptr) fail(path, "a kind of layer", "none");
  std::vector<std::string> kinds;
  std::string expected;
  for (std::size_t i = 0; i < kLayerKinds; ++i) {
    const auto kind = static_cast<LayerKind>(i);
    if (json->is_string() && json->get_ref<const std::string&>() == to_string(kind)) return kind;
    kinds.emplace_back(to_string(kind));
    expected += (i == 0 ? "one of " : ", ") + kinds.back();
  }
  const std::string near = json->is_string() ? nearest(json->get<std::string>(), kinds) : "";
  // Where the slip is plain, forty names would only hide it.
  if (!near.empty()) expected = "a kind of layer, such as " + near;
  fail(path, expected, show_json(*json));
}

void read_field(const Fields&, const Json& json, const std::string& path,
                std::vector<LayerSpec>& to) {
  read_array(json, path, static_cast<std::size_t>(kMaxLayers), to,
             [](const Json& item, const std::string& at, LayerSpec& layer) {
               Fields f(item, at);
               layer.kind = read_kind(f.find("kind"), f.path("kind"));
               read_fields(f, layer);
               f.finish();
             });
}

void read_field(const Fields&, const Json& json, const std::string& path, const CustomLayer*& to) {
  if (!json.is_string()) fail(path, "the declaration of a custom layer", show_json(json));
  to = declared(json.get_ref<const std::string&>());
}

/// A seed above 2^53 is written as text, since other readers of JSON would round it.
void read_field(const Fields& f, const Json& json, const std::string& path, std::uint64_t& to) {
  if (!json.is_string()) {
    to = f.integer<std::uint64_t>(json, path);
    return;
  }
  const std::string& text = json.get_ref<const std::string&>();
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), to);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) {
    fail(path, "decimal digits of an integer below 2^64", show_json(json));
  }
}

template <class S>
void read_fields(Fields& f, S& s) {
  for_each_field(s, [&](const auto& field, auto& value, const auto&) {
    const char* name = field.name.data();
    const Json* json = field.presence == Presence::required ? &f.need(name) : f.find(name);
    const bool by_old_name = json == nullptr && !field.old_name.empty();
    if (by_old_name) json = f.find(field.old_name.data());
    if (json != nullptr) read_field(f, *json, f.path(name), value);
  });
}

void check_format(const Fields& f, const Json* json) {
  if (json == nullptr) fail("format", std::to_string(Case::kFormat), "none: this is no case");
  const int format = f.integer<int>(*json, "format");
  if (format == Case::kFormat) return;
  const bool newer = format > Case::kFormat;
  fail("format", std::to_string(Case::kFormat),
       std::to_string(format) +
           (newer ? ", which a newer program wrote" : ", which this program no longer reads"));
}

/// Texts by the names of options. Commands may be long.
Options read_found_with(const Json* json) {
  constexpr std::size_t kLongest = std::size_t{1} << 16;
  Options words;
  if (json == nullptr) return words;
  Fields f(*json, "found_with");
  for (const auto& [name, value] : json->items()) f.read(name.c_str(), words[name], kLongest);
  return words;
}

}  // namespace

Case case_from_json(std::string_view text, Options* found_with) {
  const Json json = parse_json(kCase, text, kMaxCaseTextBytes, kMaxCaseTextNesting);
  Fields f(json, "");
  check_format(f, f.find("format"));
  const Options words = read_found_with(f.find("found_with"));
  if (found_with != nullptr) *found_with = words;
  Case c;
  read_fields(f, c);
  f.finish();
  validate(c);
  return c;
}

}  // namespace rematch
