#include "properties/hunt/frameworks.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstdlib>
#include <string>

#include "properties/testing/shell.h"

namespace rematch {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

Frameworks loaded(const std::string& text) {
  const testing::ScratchFolder folder;
  return load_frameworks(folder.write("frameworks.json", text));
}

TEST_CASE("the list of frameworks says how each subject is started") {
  const Frameworks f = loaded(R"({"format": 1,
    "environments": {"one": {"module": "m", "requires": ["m"], "variables": {"A": "b c"}}},
    "subjects": {"s:t": {"environment": "one", "arguments": "s --t"}}})");
  REQUIRE(f.subjects.contains("s:t"));
  const Frameworks::Subject& subject = f.subjects.at("s:t");
  CHECK(subject.environment == "one");
  CHECK(subject.arguments == "s --t");
  CHECK(subject.variables == std::map<std::string, std::string>{{"A", "b c"}});
}

TEST_CASE("a list of frameworks that cannot be read is refused with the place") {
  const auto refused = [](const std::string& text, const std::string& message) {
    INFO(text);
    CHECK_THROWS_MATCHES(loaded(text), std::invalid_argument,
                         MessageMatches(ContainsSubstring(message)));
  };
  refused("", "frameworks.json");
  refused(R"({"format": 2, "environments": {}, "subjects": {}})", "format");
  refused(R"({"format": 1, "environments": [], "subjects": {}})", "environments");
  refused(R"({"format": 1, "environments": {},
              "subjects": {"s": {"environment": "e", "arguments": "s"}}})",
          "subjects.s.environment: expected one of the environments, got e");
  refused(R"({"format": 1, "environments": {"e": {"variables": {"A": 1}}}, "subjects": {}})",
          "environments.e.variables");
  refused(R"({"format": 1, "environments": {"e": {}},
              "subjects": {"s": {"environment": "e", "argument": "s"}}})",
          "subjects.s");
}

TEST_CASE("a subject is started with the Python that was chosen for its environment") {
  const auto with = [](const char* name, const char* value) { ::setenv(name, value, 1); };
  with("REMATCH_PYTHON", "/for/all");
  with("REMATCH_PYTHON_PYTORCH", "/for/torch");
  const std::string torch = framework_command("pytorch:fsdp").value();
  const std::string mlx = framework_command("mlx").value();
  ::unsetenv("REMATCH_PYTHON");
  ::unsetenv("REMATCH_PYTHON_PYTORCH");
  CHECK_THAT(torch, ContainsSubstring("/for/torch' -m rematch pytorch --wrapper fsdp") ||
                        ContainsSubstring("/for/torch -m rematch pytorch --wrapper fsdp"));
  CHECK_THAT(mlx, ContainsSubstring("/for/all"));
  CHECK_FALSE(framework_command("pytorch:both"));
}

TEST_CASE("a variant without a profile has that of its framework") {
  CHECK(framework_profile("pytorch:fsdp").value().filename() == "pytorch.json");
  CHECK(framework_profile("pytorch:composable").value().filename() == "pytorch_composable.json");
  CHECK(framework_profile("keras:tensorflow:scope").value().filename() == "keras_tensorflow.json");
  CHECK(framework_profile("keras:torch:scope").value().filename() == "keras_torch.json");
  CHECK_FALSE(framework_profile("engine"));
}

}  // namespace
}  // namespace rematch
