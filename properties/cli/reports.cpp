#include "properties/cli/reports.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <utility>

#include "properties/case/describe.h"
#include "properties/cli/commands.h"

namespace rematch::cli {
namespace {

std::string without_end(const std::string& script) {
  return script.substr(0, script.find_last_not_of('\n') + 1);
}

/// What a user sees, as a title says it.
std::string_view symptom_of(const Law& law) {
  constexpr std::pair<std::string_view, std::string_view> kOfLaws[] = {
      {"outputs", "other outputs"},
      {"losses", "another loss"},
      {"reevaluation", "other outputs after training"},
      {"dropout-masks", "another dropout mask in the recomputation"},
      {"parameters-after-step", "wrong parameters after a step"},
      {"survives", "the process dies"}};
  for (const auto& [name, symptom] : kOfLaws) {
    if (law.name == name) return symptom;
  }
  switch (law.topic) {
    case Topic::numbers:
      return "a wrong gradient";
    case Topic::randomness:
      return "another random state";
    case Topic::state:
      return "a wrong state of a layer";
    case Topic::gradient_flow:
      return "a gradient is missing, or is there where none should be";
    case Topic::recomputation:
      return "other values, or another number of runs, in the recomputation";
    case Topic::memory:
      return "more memory than promised";
    case Topic::errors:
      return "an error that only the checkpointed run has, or lacks";
    case Topic::survival:
    case Topic::own:
      break;
  }
  return "what the documentation states does not hold";
}

}  // namespace

std::string issue_of(const Case& c, const Violation& v, const KnownDivergence* entry,
                     const Declaration& declared, const std::string& script) {
  const Law& law = *find_law(v.law);
  const std::string cause =
      entry != nullptr
          ? entry->why + (entry->reported.empty() ? "" : "\n\nSee also " + entry->reported)
          : "Not known.";
  std::string model;
  std::string plan;
  std::istringstream in(describe(c));
  std::getline(in, model);
  std::getline(in, plan);
  std::string kinds;
  for (const LayerSpec& l : c.layers) {
    kinds += (kinds.empty() ? "" : ", ") + std::string(to_string(l.kind));
  }
  const std::string off =
      v.distance ? fmt::format(", off by {:.3g} of the largest element", *v.distance) : "";
  return fmt::format(
      "<!-- A person has to write the report: these are facts for that person, not its text. -->\n"
      "# {0}: {1}: {2}; {3}\n\n"
      "## Describe the bug\n\n{4}\n\n"
      "    {5}\n    {6}\n\n"
      "Without the checkpoint: {7}\nWith it: {8}{9}\nat {10}\n\n"
      "Controls: change one thing of the script at a time, and say what makes it right.\n\n"
      "## Script\n\n```python\n{11}\n```\n\n"
      "## Cause\n\n{12}\n\n"
      "## Versions\n\n{13}\n",
      declared.name, symptom_of(law), kinds, plan.substr(std::min(plan.size(), plan.find(' ') + 1)),
      law.harm, model, plan, v.expected, v.got, off, v.place, without_end(script), cause,
      text_of(declared.versions));
}

std::string test_of(const Violation& v, const std::string& script) {
  const Law& law = *find_law(v.law);
  std::string name(law.name);
  std::replace(name.begin(), name.end(), '-', '_');
  std::string body;
  std::string last;
  std::istringstream in(without_end(script));
  for (std::string line; std::getline(in, line);) {
    if (!body.empty() || !last.empty()) body += (last.empty() ? "" : "        " + last) + "\n";
    last = line;
  }
  if (last.ends_with("exit(1 if different else 0)")) {
    last = "self.assertFalse(different)";
  } else if (last.ends_with("SystemExit(0 if same else 1)")) {
    last = "self.assertTrue(same)";
  } else {
    throw UsageError("--export test: the script ends in `" + last +
                     "`, of which no assertion can be made");
  }
  return fmt::format(
      "import unittest\n\n\n"
      "class TestActivationCheckpoint(unittest.TestCase):\n"
      "    def test_{}(self):\n"
      "        \"\"\"{}\"\"\"\n\n"
      "{}        {}\n\n\n"
      "if __name__ == \"__main__\":\n"
      "    unittest.main()\n",
      name, law.statement, body, last);
}

}  // namespace rematch::cli
