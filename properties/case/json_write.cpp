#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <type_traits>

#include "properties/case/json.h"
#include "properties/layers/custom_layer.h"
#include "properties/layers/layer.h"

namespace rematch {
namespace {

/// Writes objects on one line; but each layer, segment and part of a case has a line of its own.
class Writer {
 public:
  explicit Writer(std::string& out) : out_(out) {}

  template <class S>
  void object(const S& s) {
    out_ += '{';
    bool first = true;
    fields(s, [&] {
      out_ += first ? "" : ", ";
      first = false;
    });
    out_ += '}';
  }

  /// `before()` is called before each field that is written.
  template <class S, class Before>
  void fields(const S& s, Before before) {
    for_each_field(s, [&](const auto& field, const auto& value, const auto& usual) {
      if (field.presence == Presence::unusual && value == usual) return;
      before();
      out_ += '"' + std::string(field.name) + "\": ";
      put(value);
    });
  }

  void put(const Options& options) {
    const char* separator = "{";
    for (const auto& [name, value] : options) {
      out_ += separator + quoted(name) + ": " + quoted(value);
      separator = ", ";
    }
    out_ += '}';
  }

 private:
  template <class Value>
  void put(const Value& value) {
    if constexpr (std::is_same_v<Value, bool>) {
      out_ += value ? "true" : "false";
    } else if constexpr (std::is_enum_v<Value>) {
      out_ += '"' + std::string(to_string(value)) + '"';
    } else if constexpr (std::is_floating_point_v<Value>) {
      std::array<char, 32> text{};
      // The shortest digits that read back as the same number.
      out_.append(text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr);
    } else if constexpr (std::is_integral_v<Value>) {
      out_ += std::to_string(value);
    } else {
      object(value);
    }
  }

  void put(std::uint64_t seed) {
    constexpr std::uint64_t kExactInDouble = std::uint64_t{1} << 53;
    const std::string quote = seed > kExactInDouble ? "\"" : "";
    out_ += quote + std::to_string(seed) + quote;
  }

  template <class Item, class One>
  void list(const std::vector<Item>& items, One one) {
    out_ += '[';
    for (const Item& item : items) {
      if (&item != items.data()) out_ += ", ";
      one(item);
    }
    out_ += ']';
  }
  /// One item a line.
  template <class Item>
  void lines(const std::vector<Item>& items) {
    out_ += '[';
    indent_ += 2;
    for (const Item& item : items) {
      out_ += (&item == items.data() ? "\n" : ",\n") + std::string(indent_, ' ');
      line(item);
    }
    indent_ -= 2;
    out_ += "\n" + std::string(indent_, ' ') + ']';
  }
  void line(const SegmentSpec& s) { object(s); }
  void line(const LayerSpec& l) {
    out_ += "{\"kind\": \"" + std::string(to_string(l.kind)) + '"';
    fields(l, [&] { out_ += ", "; });
    out_ += '}';
  }

  void put(const CustomLayer* layer) { out_ += '"' + std::string(to_string(layer)) + '"'; }
  void put(const ValueRef& v) {
    out_ += "[" + std::to_string(v.layer) + ", " + std::to_string(v.output) + "]";
  }
  void put(const std::vector<ValueRef>& operands) {
    if (operands.size() == 1) return put(operands[0]);
    list(operands, [&](const ValueRef& v) { put(v); });
  }
  void put(const std::vector<KeepSpec>& keep) {
    list(keep, [&](const KeepSpec& k) {
      out_ += "{\"op\": \"" + std::string(k.op) + '"';
      if (k.index != KeepSpec{}.index) out_ += ", \"index\": " + std::to_string(k.index);
      out_ += '}';
    });
  }
  void put(const std::vector<std::int64_t>& extents) {
    list(extents, [&](std::int64_t extent) { out_ += std::to_string(extent); });
  }
  static std::string quoted(const std::string& text) {
    return nlohmann::json(text).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  }
  void put(const std::vector<LayerSpec>& layers) { lines(layers); }
  void put(const std::vector<SegmentSpec>& segments) { lines(segments); }
  void put(const std::optional<SequentialSpec>& sequential) { object(*sequential); }

  std::string& out_;
  std::size_t indent_ = 2;
};

}  // namespace

std::string to_json(const Case& c, const Options& found_with) {
  std::string out = "{\n  \"format\": " + std::to_string(Case::kFormat);
  Writer writer(out);
  writer.fields(c, [&] { out += ",\n  "; });
  if (!found_with.empty()) {
    out += ",\n  \"found_with\": ";
    writer.put(found_with);
  }
  return out + "\n}\n";
}

}  // namespace rematch
