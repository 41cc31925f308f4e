#include "properties/cli/reports.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "properties/cli/commands.h"

namespace rematch::cli {
namespace {

std::string without_end(const std::string& script) {
  return script.substr(0, script.find_last_not_of('\n') + 1);
}

}  // namespace

std::string issue_of(const Violation& v, const KnownDivergence* entry, const Declaration& declared,
                     const std::string& script) {
  const Law& law = *find_law(v.law);
  const std::string cause =
      entry != nullptr
          ? entry->why + (entry->reported.empty() ? "" : "\n\nSee also " + entry->reported)
          : fmt::format("Not known. {} This law is broken here: {}", law.harm, law.statement);
  return fmt::format(
      "# {0}: a checkpointed run breaks \"{1}\"\n\n"
      "{2}\n\n"
      "## Versions\n\n{3}\n\n"
      "## Expected\n\n{4}\n\nat {5}\n\n"
      "## Got\n\n{6}\n\n"
      "## Script\n\n```python\n{7}\n```\n\n"
      "## Cause\n\n{8}\n",
      declared.name, law.name, law.harm, text_of(declared.versions), v.expected, v.place, v.got,
      without_end(script), cause);
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
