#pragma once

#include <cstddef>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rematch {

/// Reading JSON that may come from anywhere: every complaint is a std::invalid_argument with the
/// place, what was expected and what came: "[case] layers[3].kernel: expected an integer, got 2.5".

[[noreturn]] void json_fail(std::string_view what, const std::string& path,
                            const std::string& expected, const std::string& got);

/// A value as it may stand in a message: short, and printable whatever came.
std::string show_json(const nlohmann::json& value, std::size_t longest = 60);

/// Parses text of at most `most_bytes` and `most_nesting` levels, in which no object has a field
/// twice.
nlohmann::json parse_json(std::string_view what, std::string_view text, std::size_t most_bytes,
                          int most_nesting);

/// Checks that a value is an array of at most `longest` elements.
void need_array(std::string_view what, const nlohmann::json& value, const std::string& path,
                std::size_t longest);

/// "path[3]".
std::string indexed(const std::string& path, std::size_t i);

/// Reads the fields of one JSON object; finish() complains of those that were not asked for.
class JsonFields {
 public:
  using Json = nlohmann::json;

  /// `what` begins every complaint: "case".
  JsonFields(std::string_view what, const Json& object, std::string path);

  std::string path(const char* name) const { return path_.empty() ? name : path_ + "." + name; }

  /// nullptr when there is no such field.
  const Json* find(const char* name);
  const Json& need(const char* name);

  void read(const char* name, std::string& to, std::size_t longest);
  /// A name or a version, which reports print: one line of 1 to kLongestLine bytes.
  static constexpr std::size_t kLongestLine = 200;
  void line(const Json& value, const std::string& path, std::string& to) const;

  /// Checks that the field is there and says `version`.
  void need_version(const char* name, int version);

  /// Calls add(value) for each name of `list`, the field `name`, as `named` knows it. It gives
  /// nullopt for names that are not `expected`.
  template <class Named, class Add>
  void read_names(const char* name, const Json& list, std::string_view expected, Named named,
                  Add add) const {
    constexpr std::size_t kMostNames = 4096;
    need_array(what_, list, path(name), kMostNames);
    for (std::size_t i = 0; i < list.size(); ++i) {
      const auto value = list[i].is_string() ? named(list[i].get_ref<const std::string&>())
                                             : decltype(named(std::string())){};
      if (!value) fail(indexed(path(name), i), std::string(expected), show_json(list[i]));
      add(*value);
    }
  }

  template <class Number>
  void read(const char* name, Number& to) {
    if (const Json* value = find(name)) scalar(*value, path(name), to);
  }

  void scalar(const Json& value, const std::string& path, bool& to) const;
  void scalar(const Json& value, const std::string& path, double& to) const;
  template <class Integer>
  void scalar(const Json& value, const std::string& path, Integer& to) const {
    to = integer<Integer>(value, path);
  }

  template <class Integer>
  Integer integer(const Json& value, const std::string& path) const {
    using Limits = std::numeric_limits<Integer>;
    if (!value.is_number_integer()) fail(path, "an integer", show_json(value));
    const bool fits = value.is_number_unsigned()
                          ? std::in_range<Integer>(value.get<std::uint64_t>())
                          : std::in_range<Integer>(value.get<std::int64_t>());
    if (!fits) {
      fail(path,
           "an integer in " + std::to_string(Limits::min()) + ".." + std::to_string(Limits::max()),
           show_json(value));
    }
    return value.get<Integer>();
  }

  void finish() const;

  [[noreturn]] void fail(const std::string& path, const std::string& expected,
                         const std::string& got) const {
    json_fail(what_, path, expected, got);
  }

 private:
  std::string_view what_;
  const Json& object_;
  std::string path_;
  std::size_t seen_ = 0;
  std::vector<const char*> known_;
};

}  // namespace rematch
