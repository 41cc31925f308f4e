#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace rematch {

/// Named options of the subject that a case sets: {"mode", "static_graph"}. An option that is not
/// named has its first value.
using Options = std::map<std::string, std::string>;

/// An option that a subject declares. Cases set it, so that nothing that decides a run is hidden in
/// their seed.
struct OptionSpec {
  std::string name;
  /// At least two. The first is the default: the value that the simplest cases have.
  std::vector<std::string> values;
  /// The share of cases, between 0 and 1, that have another value than the first. Each of the
  /// others is equally frequent.
  double share = 0;
  friend bool operator==(const OptionSpec&, const OptionSpec&) = default;
};

/// Whether `spec` has that value.
bool has_value(const OptionSpec& spec, std::string_view value);
/// nullptr when there is none of that name.
const OptionSpec* find_option(const std::vector<OptionSpec>& specs, std::string_view name);
/// Whether the option is set to that value, which is not its first.
bool is_set(const Options& options, const std::string& name, std::string_view value);
/// "mode = static_graph, promise = early_stop".
std::string to_string(const Options& options);

/// Throws std::invalid_argument with the options or values that there are, where `options` names
/// another.
void check_options(const Options& options, const std::vector<OptionSpec>& specs);

/// The harness's own option of foreign subjects: their checkpointed run is repeated and compared.
/// The subject is not told.
inline constexpr const char* kRepeat = "repeat";
/// The option of subjects that try promises beside the model, one in a run; its value names it.
inline constexpr const char* kPromise = "promise";
/// The option of subjects whose checkpoints take policies that the harness does not read; its value
/// names one.
inline constexpr const char* kPolicy = "policy";
OptionSpec repeat_option();
/// Whether the policy that kPolicy names may keep results: all do, but those whose names begin with
/// "nothing".
bool policy_may_keep(const Options& options);

}  // namespace rematch
