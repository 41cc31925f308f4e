#include "properties/case/json_fields.h"

#include <algorithm>
#include <set>
#include <stdexcept>

#include "properties/case/nearest.h"

namespace rematch {

using Json = nlohmann::json;

void json_fail(std::string_view what, const std::string& path, const std::string& expected,
               const std::string& got) {
  throw std::invalid_argument("[" + std::string(what) + "] " + path + ": expected " + expected +
                              ", got " + got);
}

std::string show_json(const Json& value, std::size_t longest) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return "an array of " + std::to_string(value.size());
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > longest) text = text.substr(0, longest) + "...";
  return text;
}

namespace {

void check_nesting(std::string_view what, std::string_view text, int most) {
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char ch = text[i];
    if (in_string) {
      if (ch == '\\') ++i;
      if (ch == '"') in_string = false;
    } else if (ch == '"') {
      in_string = true;
    } else if (ch == '[' || ch == '{') {
      if (++depth > most) {
        json_fail(what, "text", "at most " + std::to_string(most) + " levels of nesting", "more");
      }
    } else if (ch == ']' || ch == '}') {
      --depth;
    }
  }
}

}  // namespace

Json parse_json(std::string_view what, std::string_view text, std::size_t most_bytes,
                int most_nesting) {
  if (text.size() > most_bytes) {
    json_fail(what, "text", "at most " + std::to_string(most_bytes) + " bytes",
              std::to_string(text.size()));
  }
  check_nesting(what, text, most_nesting);
  std::vector<std::set<std::string>> keys;
  const auto watch = [&](int, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key &&
        !keys.back().insert(parsed.get_ref<const std::string&>()).second) {
      json_fail(what, show_json(parsed), "each field once", "it twice in one object");
    }
    return true;
  };
  try {
    return Json::parse(text, watch);
  } catch (const Json::exception& e) {
    std::string message = e.what();
    message = message.substr(message.find("] ") + 2);
    json_fail(what, "text", "JSON", show_json(Json(message), 200));
  }
}

void need_array(std::string_view what, const Json& value, const std::string& path,
                std::size_t longest) {
  if (!value.is_array()) json_fail(what, path, "an array", show_json(value));
  if (value.size() > longest) {
    json_fail(what, path, "at most " + std::to_string(longest) + " elements", show_json(value));
  }
}

std::string indexed(const std::string& path, std::size_t i) {
  return path + "[" + std::to_string(i) + "]";
}

JsonFields::JsonFields(std::string_view what, const Json& object, std::string path)
    : what_(what), object_(object), path_(std::move(path)) {
  if (!object.is_object()) fail(path_.empty() ? "text" : path_, "an object", show_json(object));
}

const Json* JsonFields::find(const char* name) {
  const auto it = object_.find(name);
  if (it == object_.end()) return nullptr;
  ++seen_;
  known_.push_back(name);
  return &*it;
}

const Json& JsonFields::need(const char* name) {
  const Json* value = find(name);
  if (value == nullptr) fail(path(name), "a value", "none");
  return *value;
}

void JsonFields::scalar(const Json& value, const std::string& path, bool& to) const {
  if (!value.is_boolean()) fail(path, "true or false", show_json(value));
  to = value.get<bool>();
}

void JsonFields::scalar(const Json& value, const std::string& path, double& to) const {
  if (!value.is_number()) fail(path, "a number", show_json(value));
  to = value.get<double>();
}

void JsonFields::read(const char* name, std::string& to, std::size_t longest) {
  const Json* value = find(name);
  if (value == nullptr) return;
  if (!value->is_string()) fail(path(name), "text", show_json(*value));
  to = value->get_ref<const std::string&>();
  if (to.size() > longest) {
    fail(path(name), "at most " + std::to_string(longest) + " bytes", std::to_string(to.size()));
  }
}

void JsonFields::line(const Json& value, const std::string& path, std::string& to) const {
  if (!value.is_string()) fail(path, "text", show_json(value));
  to = value.get_ref<const std::string&>();
  const auto controls = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
  if (to.empty() || to.size() > kLongestLine || std::any_of(to.begin(), to.end(), controls)) {
    fail(path, "one line of 1 to " + std::to_string(kLongestLine) + " bytes", show_json(value));
  }
}

void JsonFields::need_version(const char* name, int version) {
  const int got = integer<int>(need(name), path(name));
  if (got != version) fail(path(name), std::to_string(version), std::to_string(got));
}

void JsonFields::finish() const {
  if (seen_ == object_.size()) return;
  for (const auto& [name, value] : object_.items()) {
    bool is_known = false;
    for (const char* k : known_) is_known = is_known || name == k;
    if (!is_known) {
      fail(path_.empty() ? "text" : path_, "known fields only",
           "unknown field " + show_json(Json(name)) +
               did_you_mean(name, {known_.begin(), known_.end()}));
    }
  }
}

}  // namespace rematch
