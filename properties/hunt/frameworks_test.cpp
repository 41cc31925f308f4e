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
  folder.write("one/framework.json", text);
  return load_frameworks(folder.path());
}

TEST_CASE("the file of a framework says how each subject is started") {
  const Frameworks f = loaded(R"({"format": 1,
    "environments": {"one": {"module": "m", "requires": ["m"], "variables": {"A": "b c"}}},
    "subjects": {"s:t": {"environment": "one", "arguments": "s --t", "runs": "`s()`"}}})");
  REQUIRE(f.subjects.contains("s:t"));
  const Frameworks::Subject& subject = f.subjects.at("s:t");
  CHECK(subject.environment == "one");
  CHECK(subject.arguments == "s --t");
  CHECK(subject.runs == "`s()`");
  CHECK(subject.variables == std::map<std::string, std::string>{{"A", "b c"}});
}

TEST_CASE("a subject may be started with the environment of another framework") {
  const testing::ScratchFolder folder;
  folder.write(
      "a/framework.json",
      R"({"format": 1, "subjects": {"a": {"environment": "e", "arguments": "a", "runs": "a"}}})");
  folder.write(
      "b/framework.json",
      R"({"format": 1, "environments": {"e": {"variables": {"A": "b"}}}, "subjects": {}})");
  folder.write("no_framework/README.md", "");
  const Frameworks f = load_frameworks(folder.path());
  REQUIRE(f.subjects.size() == 1);
  CHECK(f.subjects.at("a").variables.at("A") == "b");
  CHECK(f.subjects.at("a").folder.filename() == "a");
}

TEST_CASE("the file of a framework that cannot be read is refused with the place") {
  const auto refused = [](const std::string& text, const std::string& message) {
    INFO(text);
    CHECK_THROWS_MATCHES(loaded(text), std::invalid_argument,
                         MessageMatches(ContainsSubstring(message)));
  };
  refused("", "framework.json");
  refused(R"({"format": 2, "environments": {}, "subjects": {}})", "format");
  refused(R"({"format": 1, "environments": [], "subjects": {}})", "environments");
  refused(R"({"format": 1, "environments": {},
              "subjects": {"s": {"environment": "e", "arguments": "s", "runs": "s"}}})",
          "subjects.s.environment: expected one of the environments, got e");
  refused(R"({"format": 1, "environments": {"e": {}},
              "subjects": {"s": {"environment": "e", "arguments": "s"}}})",
          "subjects.s.runs");
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

TEST_CASE("a checkpoint() function of one's own is run by the adapter of PyTorch") {
  ::setenv("REMATCH_PYTHON_PYTORCH", "/usr/bin/python3", 1);
  const auto command = framework_command("mine.py:my_checkpoint");
  ::unsetenv("REMATCH_PYTHON_PYTORCH");
  REQUIRE(command);
  CHECK(command->ends_with("exec /usr/bin/python3 -m rematch mine.py:my_checkpoint"));
  CHECK(framework_profile("mine.py:my_checkpoint") == framework_profile("pytorch"));
  CHECK(framework_command("mine.py:f", "/my/python")->ends_with("/my/python -m rematch mine.py:f"));
  const testing::ScratchFolder folder;
  const std::string file = folder.write("my files/mine.py", "");
  CHECK(framework_command(file + ":f --defaults", "python")
            ->ends_with("python -m rematch '" + file + ":f' --defaults"));
  for (const char* none : {"mine.py", "mine.py:", "python3 mine.py:f"}) {
    INFO(none);
    CHECK_FALSE(framework_command(none));
    CHECK_FALSE(framework_profile(none));
  }
}

/// An environment variable while it is in scope; empty: none.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    if (const char* before = std::getenv(name)) before_ = before;
    set(value);
  }
  ~Variable() { set(before_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  void set(const std::string& value) const {
    if (value.empty()) {
      ::unsetenv(name_);
    } else {
      ::setenv(name_, value.c_str(), 1);
    }
  }

  const char* name_;
  std::string before_;
};

TEST_CASE("words behind the name of a framework are arguments of its adapter") {
  const auto command = framework_command("pytorch:reentrant --layers layers.py:LAYERS", "python");
  REQUIRE(command);
  CHECK(command->ends_with("rematch pytorch --variant reentrant --layers layers.py:LAYERS"));
  CHECK(framework_profile("pytorch:ddp --defaults") == framework_profile("pytorch:ddp"));
}

TEST_CASE("an environment that is being installed is not taken for ready") {
  const testing::ScratchFolder cache;
  const Variable home("XDG_CACHE_HOME", cache.path().string());
  const Variable all("REMATCH_PYTHON", "");
  const Variable own("REMATCH_PYTHON_MLX", "");
  cache.write("rematch/frameworks/mlx/bin/python", "#!/bin/sh\n");
  CHECK(framework_command("mlx"));
  cache.write("rematch/frameworks/mlx/being-installed", "");
  CHECK_THROWS_MATCHES(framework_command("mlx"), std::invalid_argument,
                       MessageMatches(ContainsSubstring("is still being installed")));
}

TEST_CASE("a variant without a profile has that of its framework") {
  const std::filesystem::path pytorch = known_frameworks().subjects.at("pytorch").folder;
  CHECK(framework_profile("pytorch:fsdp").value() == pytorch / "profile.json");
  CHECK(framework_profile("pytorch:composable").value() == pytorch / "profile_composable.json");
  CHECK(framework_profile("keras:tensorflow:scope").value().filename() ==
        "profile_tensorflow.json");
  CHECK(framework_profile("keras:torch:scope").value().filename() == "profile_torch.json");
  CHECK_FALSE(framework_profile("engine"));
}

}  // namespace
}  // namespace rematch
