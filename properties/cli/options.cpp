#include "properties/cli/options.h"

#include <CLI/CLI.hpp>
#include <utility>

namespace rematch::cli {

Option& Option::required() {
  option_->required();
  return *this;
}

Option& Option::is_folder() {
  option_->check(CLI::ExistingDirectory);
  return *this;
}

Option& Option::needs(const Option& other) {
  option_->needs(other.option_);
  return *this;
}

Option& Option::excludes(const Option& other) {
  option_->excludes(other.option_);
  return *this;
}

Command Command::add_command(const std::string& name, const std::string& description) {
  return {*app_->add_subcommand(name, description), *chosen_};
}

void Command::runs(Action action) {
  app_->callback([&chosen = *chosen_, action = std::move(action)] { chosen = action; });
}

Option Command::add(const std::string& name, std::string& value, const std::string& type,
                    const std::string& help) {
  return Option(*app_->add_option(name, value, help)->capture_default_str()->type_name(type));
}

Option Command::add(const std::string& name, std::vector<std::string>& values,
                    const std::string& type, const std::string& help) {
  CLI::Option* option = app_->add_option(name, values, help)->type_name(type);
  if (name.starts_with('-')) option->allow_extra_args(false);
  if (!values.empty()) option->capture_default_str();
  return Option(*option);
}

Option Command::add_flag(const std::string& name, bool& value, const std::string& help) {
  return Option(*app_->add_flag(name, value, help));
}

}  // namespace rematch::cli
