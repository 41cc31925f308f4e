#include "properties/case/options_json.h"

#include <algorithm>
#include <string>

namespace rematch {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMostValues = 4096;

OptionSpec read_option(const JsonFields& hello, const std::string& name, const Json& values,
                       const std::string& path) {
  OptionSpec spec;
  hello.line(Json(name), path, spec.name);
  if (!values.is_array() || values.size() < 2 || values.size() > kMostValues) {
    hello.fail(path, "a list of 2 to " + std::to_string(kMostValues) + " values",
               show_json(values));
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::string value;
    hello.line(values[i], indexed(path, i), value);
    if (has_value(spec, value)) hello.fail(indexed(path, i), "each value once", value + " again");
    spec.values.push_back(value);
  }
  spec.share = 1 - 1 / static_cast<double>(values.size());
  return spec;
}

const Json& need_object(JsonFields& hello, const char* name, const Json& json) {
  if (!json.is_object()) hello.fail(hello.path(name), "an object", show_json(json));
  return json;
}

}  // namespace

std::vector<OptionSpec> read_options(JsonFields& hello) {
  std::vector<OptionSpec> specs;
  if (const Json* options = hello.find("options")) {
    for (const auto& [name, values] : need_object(hello, "options", *options).items()) {
      specs.push_back(read_option(hello, name, values, hello.path("options") + "." + name));
    }
  }
  const Json* shares = hello.find("shares");
  if (shares == nullptr) return specs;
  for (const auto& [name, share] : need_object(hello, "shares", *shares).items()) {
    const std::string path = hello.path("shares") + "." + name;
    const auto spec = std::find_if(specs.begin(), specs.end(),
                                   [&](const OptionSpec& s) { return s.name == name; });
    if (spec == specs.end()) hello.fail(path, "the name of an option", "another");
    hello.scalar(share, path, spec->share);
    if (spec->share < 0 || spec->share > 1) hello.fail(path, "0 to 1", show_json(share));
  }
  return specs;
}

void write_options(const std::vector<OptionSpec>& specs, Json& hello) {
  for (const OptionSpec& spec : specs) {
    hello["options"][spec.name] = spec.values;
    hello["shares"][spec.name] = spec.share;
  }
}

}  // namespace rematch
