#include <fmt/format.h>

#include "properties/cli/commands.h"
#include "properties/cli/terminal.h"
#include "properties/hunt/regressions.h"

namespace rematch::cli {

std::filesystem::path executable() { return std::filesystem::read_symlink("/proc/self/exe"); }

Mix parse_mix(std::string_view name) {
  if (name == "standard") return Mix::standard;
  if (name == "wide") return Mix::wide;
  throw UsageError(fmt::format("--mix: standard or wide expected, got \"{}\"", name));
}

std::string_view to_string(Mix mix) { return mix == Mix::standard ? "standard" : "wide"; }

const Law* parse_law(std::string_view name) {
  if (name.empty()) return nullptr;
  if (const Law* law = find_law(name)) return law;
  std::string known;
  for (const Law& law : laws()) known += fmt::format("\n  {}", law.name);
  throw UsageError(fmt::format("--law: no law is named \"{}\"; known laws:{}", name, known));
}

void CaseChoice::add_options(CLI::App& command) {
  command.add_option("case", file, "A case file, as `check` saves it")->type_name("FILE");
  command.add_option("--seed", seed, "Seed of the hunt that found the case")->type_name("S");
  command.add_option("--case", number, "Number of the case in that hunt")->type_name("K");
  command.add_option("--mix", mix, "Mix of that hunt: standard or wide")
      ->capture_default_str()
      ->type_name("MIX");
}

Case CaseChoice::load() const {
  if (!file.empty()) {
    if (seed || number) throw UsageError("give a case file, or --seed and --case, not both");
    return load_case(file);
  }
  if (!seed || !number) {
    throw UsageError("a case file, or --seed S and --case K, is expected");
  }
  return generate_case(parse_mix(mix), *seed, *number);
}

std::string CaseChoice::name() const {
  if (!file.empty()) return file;
  return fmt::format("case {} of seed {}, {} mix", number.value_or(0), seed.value_or(0), mix);
}

}  // namespace rematch::cli
