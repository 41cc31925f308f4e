#include "properties/cli/options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <utility>

#include "properties/case/nearest.h"
#include "properties/output/terminal.h"

namespace rematch::cli {
namespace {

/// Help as CLI11 prints it, with wrapped lines and defaults in words, and without lists of excluded
/// options.
class HelpFormatter : public CLI::Formatter {
 public:
  HelpFormatter() { label("SUBCOMMAND", "COMMAND"); }
  std::string make_option(const CLI::Option* option, bool is_positional) const override {
    return entry(make_option_name(option, is_positional) + make_option_opts(option),
                 make_option_desc(option));
  }
  std::string make_subcommand(const CLI::App* command) const override {
    return entry(command->get_name(), command->get_description());
  }
  std::string make_option_opts(const CLI::Option* option) const override {
    if (option->get_type_size() == 0) return {};
    std::string text;
    if (!option->get_type_name().empty()) text = " " + option->get_type_name();
    const bool takes_all = option->get_expected_max() == CLI::detail::expected_max_vector_size;
    if (takes_all && option->get_lnames().empty()) text += "...";
    return text;
  }
  std::string make_option_desc(const CLI::Option* option) const override {
    std::string text = option->get_description();
    const std::string value = option->get_default_str();
    if (!value.empty() && value != "[]") text += fmt::format(" (default: {})", value);
    return text;
  }

 private:
  static std::string entry(const std::string& name, const std::string& description) {
    constexpr int kColumn = 22;
    std::string text = "  " + padded(name, kColumn - 2);
    if (display_width(name) >= kColumn - 2) text += "\n" + std::string(kColumn, ' ');
    const char* before = "";
    for (const std::string& line : wrapped(description, terminal_width(1) - kColumn)) {
      text += before + line;
      before = "\n                      ";
    }
    return text + "\n";
  }
};

/// The command that was chosen, or the program where there is none.
const CLI::App& chosen_of(const CLI::App& app) {
  const std::vector<CLI::App*> chosen = app.get_subcommands();
  return chosen.empty() ? app : *chosen.front();
}

std::vector<std::string> option_names(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

std::string unexpected(const CLI::App& app) {
  const CLI::App& command = chosen_of(app);
  const std::string name = command.get_name();
  const std::vector<std::string> extras = app.remaining(true);
  const auto option = std::find_if(extras.begin(), extras.end(),
                                   [](const std::string& e) { return e.starts_with('-'); });
  const std::string help = app.get_parent() == nullptr && &command != &app
                               ? app.get_name() + " " + name + " --help"
                               : name + " --help";
  if (option == extras.end()) {
    return fmt::format("{} takes no argument \"{}\" (see `{}`)", name,
                       extras.empty() ? "" : extras.front(), help);
  }
  const std::string given = option->substr(0, option->find('='));
  return fmt::format("{} has no option {}{} (`{}` lists them)", name, given,
                     did_you_mean(given, option_names(command)), help);
}

/// One line for what CLI11 says in its own words.
std::string sentence_for(const CLI::App& app, const CLI::ParseError& error) {
  const std::string what = error.what();
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) return unexpected(app);
  const auto parts = [&](std::string_view between) {
    const std::size_t at = what.find(between);
    return std::pair(what.substr(0, at), what.substr(std::min(what.size(), at + between.size())));
  };
  if (dynamic_cast<const CLI::ExcludesError*>(&error) != nullptr) {
    const auto [one, other] = parts(" excludes ");
    return fmt::format("{} and {} exclude each other: give one of them", one, other);
  }
  if (dynamic_cast<const CLI::RequiresError*>(&error) != nullptr) {
    const auto [one, other] = parts(" requires ");
    return fmt::format("{} has an effect only with {}: give both or neither", one, other);
  }
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr) {
    const std::string option = what.substr(0, what.find(':'));
    if (const CLI::Option* known = chosen_of(app).get_option_no_throw(option)) {
      return fmt::format("{}: expected {}, got nothing", option, known->get_type_name());
    }
  }
  return what;
}

}  // namespace

Option& Option::is_folder() {
  option_->check([](const std::string& text) {
    std::error_code ignored;
    if (std::filesystem::is_directory(text, ignored)) return std::string();
    return fmt::format("expected a folder that exists, got \"{}\"", text);
  });
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

bool Option::given() const { return option_->count() > 0; }

void Command::parsed(std::function<void()> action) {
  app_->parse_complete_callback(std::move(action));
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

void format_help(CLI::App& app) { app.formatter(std::make_shared<HelpFormatter>()); }

std::optional<int> parse(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    throw UsageError(sentence_for(app, error));
  }
  return std::nullopt;
}

}  // namespace rematch::cli
