#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "properties/output/terminal.h"

namespace rematch::compare {

/// A file that cannot be read or is not what was expected: "FILE: PLACE: expected ..., got ...".
/// Ends in exit status 2.
class InputError : public cli::UsageError {
 public:
  using cli::UsageError::UsageError;
};

inline constexpr std::size_t kMaxFileBytes = std::size_t{64} << 20;
inline constexpr int kMaxNesting = 64;

/// The whole of a file. Throws InputError when it cannot be read, is empty or is larger than
/// kMaxFileBytes.
std::string read_text(const std::string& path);

/// Parses text that may come from anywhere. Throws InputError that names `file` and, with line and
/// column, the place: not JSON, nested deeper than kMaxNesting, a field twice in one object.
nlohmann::json parse_json(std::string_view text, const std::string& file);

/// `text` as one line that can be printed: control characters as '?', at most 80 characters.
std::string printable(std::string_view text);

/// A value within a parsed file, with its place for messages. Refers to the file's name and to
/// the parsed JSON, which must live longer.
class Input {
 public:
  Input(const nlohmann::json& value, const std::string& file, std::string place = "")
      : value_(&value), file_(&file), place_(std::move(place)) {}

  /// Throws InputError: "FILE: PLACE: expected `expected`, got VALUE".
  [[noreturn]] void fail(std::string_view expected) const;

  /// A field of an object. Throws InputError when this is no object or has no such field.
  Input at(std::string_view name) const;
  std::optional<Input> find(std::string_view name) const;
  /// The fields of an object in the order of their names.
  std::vector<std::pair<std::string, Input>> fields() const;
  /// The elements of an array.
  std::vector<Input> elements() const;

  /// A string without control characters.
  std::string text() const;
  /// A finite number.
  double number() const;
  /// A finite number above zero.
  double positive() const;
  /// A whole number in 0..2^53, however it is written: 4, 4.0 and 4e0 are the same.
  std::int64_t whole() const;
  bool is_number() const { return value_->is_number(); }
  bool is_string() const { return value_->is_string(); }
  bool is_true() const { return value_->is_boolean() && value_->get<bool>(); }
  const std::string& file() const { return *file_; }

 private:
  void need_object() const;

  const nlohmann::json* value_;
  const std::string* file_;
  std::string place_;
};

}  // namespace rematch::compare
