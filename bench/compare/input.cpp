#include "bench/compare/input.h"

#include <fmt/format.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <set>
#include <utility>

namespace rematch::compare {
namespace {

using Json = nlohmann::json;

/// Control characters of ASCII and, encoded in UTF-8, of Latin-1.
bool is_control(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
  };
  if (byte(at) < 0x20U || byte(at) == 0x7FU) return true;
  return byte(at) == 0xC2U && byte(at + 1) >= 0x80U && byte(at + 1) < 0xA0U;
}

std::string show(const Json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return fmt::format("an array of {}", value.size());
  return printable(value.dump(-1, ' ', true, Json::error_handler_t::replace));
}

/// "line 3, column 7: syntax error while ..." out of what the parser says.
std::string parser_words(const std::exception& e) {
  std::string what = e.what();
  for (const std::string_view prefix : {"] ", "parse error at ", "parse error: "}) {
    const std::size_t at = what.find(prefix);
    if (at != std::string::npos && at < 48) what = what.substr(at + prefix.size());
  }
  // What was read last may be anything.
  what = what.substr(0, what.find("; last read"));
  std::string line;
  for (const char c : what) line += printable(std::string_view(&c, 1));
  return line;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string line;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool foreign = is_control(text, i) || static_cast<unsigned char>(text[i]) >= 0x80U;
    line += foreign ? '?' : text[i];
  }
  return cli::cut(line, 80);
}

std::string read_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw InputError(fmt::format("{}: cannot be read: {}", path, std::strerror(errno)));
  std::string text;
  std::vector<char> block(std::size_t{1} << 16);
  while (in.read(block.data(), static_cast<std::streamsize>(block.size())) || in.gcount() > 0) {
    text.append(block.data(), static_cast<std::size_t>(in.gcount()));
    if (text.size() > kMaxFileBytes) {
      throw InputError(fmt::format("{}: expected at most {} bytes, got more", path, kMaxFileBytes));
    }
  }
  if (in.bad()) throw InputError(fmt::format("{}: cannot be read", path));
  if (text.empty()) throw InputError(fmt::format("{}: the file is empty", path));
  return text;
}

Json parse_json(std::string_view text, const std::string& file) {
  std::vector<std::set<std::string>> keys;
  const auto watch = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (depth > kMaxNesting) {
      throw InputError(
          fmt::format("{}: expected at most {} levels of nesting, got more", file, kMaxNesting));
    }
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key &&
        !keys.back().insert(parsed.get_ref<const std::string&>()).second) {
      throw InputError(fmt::format("{}: expected each field once, got {} twice in one object", file,
                                   show(parsed)));
    }
    return true;
  };
  try {
    return Json::parse(text, watch);
  } catch (const Json::parse_error& e) {
    const bool ends = e.byte >= text.size();
    throw InputError(fmt::format("{}: not JSON: {}{}", file, parser_words(e),
                                 ends ? "; the file ends too early, is it truncated?" : ""));
  } catch (const Json::exception& e) {
    throw InputError(fmt::format("{}: not JSON: {}", file, parser_words(e)));
  }
}

void Input::fail(std::string_view expected) const {
  throw InputError(fmt::format("{}: {}expected {}, got {}", *file_,
                               place_.empty() ? "" : place_ + ": ", expected, show(*value_)));
}

void Input::need_object() const {
  if (!value_->is_object()) fail("an object");
}

std::optional<Input> Input::find(std::string_view name) const {
  need_object();
  const auto it = value_->find(std::string(name));
  if (it == value_->end()) return std::nullopt;
  return Input(*it, *file_, (place_.empty() ? "" : place_ + ".") + printable(std::string(name)));
}

Input Input::at(std::string_view name) const {
  if (const auto field = find(name)) return *field;
  throw InputError(fmt::format("{}: {}expected a field \"{}\", got none", *file_,
                               place_.empty() ? "" : place_ + ": ", name));
}

std::vector<std::pair<std::string, Input>> Input::fields() const {
  need_object();
  std::vector<std::pair<std::string, Input>> list;
  for (const auto& [name, value] : value_->items()) list.emplace_back(name, *find(name));
  return list;
}

std::vector<Input> Input::elements() const {
  if (!value_->is_array()) fail("an array");
  std::vector<Input> list;
  list.reserve(value_->size());
  for (std::size_t i = 0; i < value_->size(); ++i) {
    list.emplace_back((*value_)[i], *file_, fmt::format("{}[{}]", place_, i));
  }
  return list;
}

std::string Input::text() const {
  if (!value_->is_string()) fail("a string");
  const auto& text = value_->get_ref<const std::string&>();
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (is_control(text, i)) fail("a string without control characters");
  }
  return text;
}

double Input::number() const {
  if (!value_->is_number()) fail("a number");
  const double number = value_->get<double>();
  if (!std::isfinite(number)) fail("a finite number");
  return number;
}

double Input::positive() const {
  const double value = number();
  if (!(value > 0)) fail("a number above zero");
  return value;
}

std::int64_t Input::whole() const {
  constexpr double kExact = 9007199254740992.0;  // 2^53
  const double value = number();
  if (value < 0 || value > kExact || value != std::floor(value)) {
    fail("a whole number from 0 to 2^53");
  }
  return static_cast<std::int64_t>(value);
}

}  // namespace rematch::compare
