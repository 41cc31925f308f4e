#include "properties/layers/options.h"

#include <algorithm>
#include <stdexcept>

namespace rematch {

bool has_value(const OptionSpec& spec, std::string_view value) {
  return std::find(spec.values.begin(), spec.values.end(), value) != spec.values.end();
}

const OptionSpec* find_option(const std::vector<OptionSpec>& specs, std::string_view name) {
  const auto found = std::find_if(specs.begin(), specs.end(),
                                  [&](const OptionSpec& spec) { return spec.name == name; });
  return found == specs.end() ? nullptr : &*found;
}

bool is_set(const Options& options, const std::string& name, std::string_view value) {
  const auto found = options.find(name);
  return found != options.end() && found->second == value;
}

std::string to_string(const Options& options) {
  std::string text;
  for (const auto& [name, value] : options) {
    text += (text.empty() ? "" : ", ") + name + " = " + value;
  }
  return text;
}

void check_options(const Options& options, const std::vector<OptionSpec>& specs) {
  const auto fail = [](const std::string& place, const std::string& known, const std::string& got) {
    throw std::invalid_argument("[case] options" + place + ": expected " + known + ", got " + got);
  };
  for (const auto& [name, value] : options) {
    std::string known;
    const OptionSpec* const spec = find_option(specs, name);
    if (spec == nullptr) {
      for (const OptionSpec& s : specs) known += (known.empty() ? "" : ", ") + s.name;
      fail("", known.empty() ? "none, for the subject has none" : "one of " + known, name);
    } else if (!has_value(*spec, value)) {
      for (const std::string& v : spec->values) known += (known.empty() ? "" : ", ") + v;
      fail("." + name, "one of " + known, value);
    }
  }
}

OptionSpec repeat_option() { return {kRepeat, {"no", "yes"}, 1.0 / 64}; }

bool policy_may_keep(const Options& options) {
  const auto policy = options.find(kPolicy);
  return policy != options.end() && !policy->second.starts_with("nothing");
}

}  // namespace rematch
