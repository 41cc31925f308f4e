#include "properties/subjects/answers.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <stdexcept>

#include "properties/case/json.h"

namespace rematch {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

/// Two layers, one of which has two parameters; one step of one microbatch.
const Case& small_case() {
  static const Case c = case_from_json(
      R"({"format": 1, "seed": 5, "input": [2, 3],
          "layers": [{"kind": "linear", "features": 2}, {"kind": "tanh"}]})");
  return c;
}

Record run_answer(const std::string& text) {
  Record record;
  read_run_answer(text, 7, "mine", small_case(), validate(small_case()), nullptr, record);
  return record;
}

/// An answer whose record has one list of one entry.
std::string with(const std::string& list, const std::string& entry) {
  return R"({"answer":{"id":7,"record":{"format":1,")" + list + R"(":[{)" + entry + "}]}}}";
}

void rejects_answer(const std::string& text, const std::string& words) {
  INFO(text.substr(0, 200));
  CHECK_THROWS_MATCHES(run_answer(text), std::invalid_argument,
                       MessageMatches(ContainsSubstring("[") && ContainsSubstring(words)));
}

std::string hello(const std::string& fields) {
  return R"({"hello":{"protocol":1,"name":"mine","implements":[],"observes":[])" + fields + "}}";
}

void rejects_hello(const std::string& fields, const std::string& words) {
  INFO(fields);
  CHECK_THROWS_MATCHES(read_hello(hello(fields)), std::invalid_argument,
                       MessageMatches(ContainsSubstring(words)));
}

}  // namespace

TEST_CASE("an answer that names what the case does not have is refused with the place") {
  CHECK(run_answer(with("draws", R"("layer":1)")).draws[0].layer == 1);
  rejects_answer(with("draws", R"("layer":2)"),
                 "answer.record.draws[0].layer: expected an integer in 0..1");
  rejects_answer(with("draws", R"("layer":-1)"), "answer.record.draws[0].layer");
  rejects_answer(with("draws", R"("step":1)"), "draws[0].step: expected an integer in 0..0, got 1");
  rejects_answer(with("executions", R"("microbatch":1)"), "executions[0].microbatch");
  rejects_answer(with("hooks", R"("parameter":2)"),
                 "hooks[0].parameter: expected an integer in 0..1");
  rejects_answer(with("values", R"("layer":4294967296)"), "values[0].layer: expected an integer");
  // Some events belong to no layer.
  CHECK(run_answer(with("live", R"("layer":-1)")).live[0].layer == -1);
}

TEST_CASE("numbers that no run has are refused") {
  rejects_answer(with("bytes", R"("saved":9223372036854775807)"), "bytes[0].saved");
  rejects_answer(with("draws", R"("elements":-9223372036854775808)"), "draws[0].elements");
  rejects_answer(with("draws", R"("elements":1e999)"), "number overflow");
  rejects_answer(with("draws", R"("elements":NaN)"), "JSON");
  rejects_answer(with("agreements", R"("host":-Infinity)"), "JSON");
}

TEST_CASE(
    "a subject is asked for what is younger than the protocol unless it says that it lacks it") {
  const FeatureSet younger{Feature::one_row, Feature::nothing_trains};
  const auto implemented = [](const std::string& fields) {
    return read_hello(hello(fields)).declaration.scope.features;
  };
  CHECK(implemented("") == younger);
  CHECK(implemented(R"(,"lacks":["one_row"])") == FeatureSet{Feature::nothing_trains});
  rejects_hello(R"(,"lacks":["no_row"])", "hello.lacks[0]");
}

TEST_CASE("an answer is one object with the id of its request") {
  for (const char* id : {"8", "-7", "7.0", "\"7\"", "null", "[7]", "18446744073709551623"}) {
    rejects_answer(std::string(R"({"answer":{"id":)") + id + R"(,"record":{"format":1}}})",
                   "answer.id: expected 7");
  }
  rejects_answer(R"({"answer":{"record":{"format":1}}})", "answer.id: expected a value");
  rejects_answer(R"({"answer":{"id":7,"id":7,"record":{"format":1}}})", "each field once");
  rejects_answer(R"({"answer":{"id":7,"record":{"format":1}},"hello":{}})", "{\"answer\": {...}}");
  rejects_answer(R"({"answer":{"id":7}})", "answer.record: expected a value");
  rejects_answer(R"({"answer":{"id":7,"record":{"format":1},"script":""}})",
                 "unknown field \"script\"");
  rejects_answer(R"({"answer":{"id":7,"unsupported":3}})", "answer.unsupported: expected text");
  rejects_answer(std::string(R"({"answer":{"id":7,"record":)") + std::string(40, '['), "nesting");
  CHECK_THROWS_AS(run_answer(R"({"answer":{"id":7,"unsupported":"no"}})"), NotJudged);
  CHECK_THROWS_AS(run_answer(R"({"answer":{"id":7,"error":"no"}})"), SubjectBroken);
}

TEST_CASE("a hello may name the profile of a subject that it is like") {
  CHECK(read_hello(hello("")).declaration.profile.empty());
  CHECK(read_hello(hello(R"(,"profile":"pytorch")")).declaration.profile == "pytorch");
  rejects_hello(R"(,"profile":["pytorch"])", "hello.profile: expected text");
}

TEST_CASE("a hello may name versions, each on one line") {
  const auto versions = [](const std::string& fields) {
    return read_hello(hello(fields)).declaration.versions;
  };
  CHECK(versions(R"(,"versions":{"torch":"2.15.0","python":"3.11"})") ==
        Versions{{"python", "3.11"}, {"torch", "2.15.0"}});
  CHECK(versions("").empty());
  rejects_hello(R"(,"versions":["torch"])", "hello.versions: expected an object");
  rejects_hello(R"(,"versions":{"torch":2.15})", "hello.versions.torch: expected text, got 2.15");
  rejects_hello(R"(,"versions":{"torch":"\u001b[31m"})", "expected one line of 1 to 200 bytes");
  rejects_hello(R"(,"versions":{"":"2"})", "expected one line");
}

TEST_CASE("a hello may name options, whose values are equally frequent unless it says otherwise") {
  const auto options = [](const std::string& fields) {
    return read_hello(hello(fields)).declaration.scope.options;
  };
  const std::string two =
      R"(,"options":{"promise":["none","nested","early_stop"],"mode":["default","static_graph"]})";
  const OptionSpec mode{"mode", {"default", "static_graph"}, 0.5};
  CHECK(options("") == std::vector{repeat_option()});
  CHECK(options(two + R"(,"shares":{"promise":0.4})") ==
        std::vector<OptionSpec>{
            mode, {"promise", {"none", "nested", "early_stop"}, 0.4}, repeat_option()});
  CHECK(options(R"(,"options":{"mode":["default","static_graph"]})") ==
        std::vector<OptionSpec>{mode, repeat_option()});
  rejects_hello(R"(,"options":["mode"])", "hello.options: expected an object");
  rejects_hello(R"(,"options":{"mode":["default"]})",
                "hello.options.mode: expected a list of 2 to");
  rejects_hello(R"(,"options":{"mode":["a","a"]})",
                "hello.options.mode[1]: expected each value once");
  rejects_hello(R"(,"options":{"mode":["a","\n"]})", "hello.options.mode[1]: expected one line");
  rejects_hello(R"(,"options":{"repeat":["no","yes"]})", "hello.options: expected other names");
  rejects_hello(two + R"(,"shares":{"modes":0.4})", "hello.shares.modes: expected the name of an");
  rejects_hello(two + R"(,"shares":{"mode":1.5})", "hello.shares.mode: expected 0 to 1, got 1.5");
}

TEST_CASE("the script of an answer is a text that is not empty") {
  const std::string given = R"({"answer":{"id":7,"script":"import torch"}})";
  CHECK(read_export_answer(given, 7, "mine") == "import torch");
  CHECK_THROWS_AS(read_export_answer(R"({"answer":{"id":7}})", 7, "mine"), std::invalid_argument);
  CHECK_THROWS_AS(read_export_answer(R"({"answer":{"id":7,"script":3}})", 7, "mine"),
                  std::invalid_argument);
}

}  // namespace rematch
