#include "properties/subjects/process_subject.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <string>

#include "properties/case/json.h"
#include "properties/generate/mix.h"
#include "properties/hunt/gather.h"
#include "properties/subjects/engine_subject.h"
#include "properties/testing/outcome.h"

namespace rematch {
namespace {

using Catch::Matchers::ContainsSubstring;

const std::string kHello =
    R"({"hello":{"protocol":1,"name":"mine","implements":["linear"],"observes":["outputs"]}})";

/// A subject in the language of the shell: it says hello, and does `then` for each request, whose
/// id is $id.
std::string script(const std::string& then, const std::string& hello = kHello) {
  return "read -r line <&3; printf '%s\\n' '" + hello +
         "' >&4; while read -r line <&3; do id=${line#*'\"id\":'}; id=${id%%,*}; " + then +
         "; done";
}

/// The text that printf writes for the id.
std::string answer(const std::string& fields) {
  return "printf '{\"answer\":{\"id\":%s," + fields + "}}\\n' \"$id\" >&4";
}

const Case& one_linear() {
  static const Case c = case_from_json(
      R"({"format": 1, "seed": 5, "input": [2, 3], "layers": [{"kind": "linear", "features": 2}]})");
  return c;
}

/// The message of the exception that run() throws for a subject that does `then`.
std::string thrown_by(const std::string& command, ProcessLimits limits = {}) {
  ProcessSubject subject(command, limits);
  Record record;
  return testing::message_of(
      [&] { subject.run(one_linear(), validate(one_linear()), {}, record); });
}

std::string refusal_of(const std::string& command) {
  return testing::message_of([&] { const ProcessSubject subject(command, {.start_seconds = 10}); });
}

}  // namespace

TEST_CASE("the engine behind two pipes gives the records of the engine") {
  EngineSubject here;
  ProcessSubject there(REMATCH_PROGRAM " serve");
  CHECK(there.declares().name == "engine");
  Scope scope = here.declares().scope;
  scope.options.push_back(repeat_option());
  CHECK(there.declares().scope == scope);
  Workspace one;
  Workspace other;
  for (std::uint64_t i = 0; i < 60; ++i) {
    const Case c = generate_case(Mix::wide, 41, i);
    const Verdicts verdicts = judge_case(c, here, one);
    const Verdicts through_pipes = judge_case(c, there, other);
    CHECK(verdicts.violations.size() == through_pipes.violations.size());
    CHECK(one.plain.hash() == other.plain.hash());
    CHECK(one.checkpointed.hash() == other.checkpointed.hash());
    CHECK(one.checkpointed.values.size() == other.checkpointed.values.size());
  }
}

TEST_CASE("a fault of the engine is seen through two pipes as well") {
  ProcessSubject subject(REMATCH_PROGRAM " serve --subject engine:S1");
  Workspace workspace;
  bool seen = false;
  for (std::uint64_t i = 0; i < 200 && !seen; ++i) {
    seen = !judge_case(generate_case(Mix::wide, 7, i), subject, workspace).kept();
  }
  CHECK(seen);
}

TEST_CASE("a process that dies is replaced by a fresh one, and its end is told") {
  const std::string killed = thrown_by(script("kill -9 $$"));
  CHECK_THAT(killed, ContainsSubstring("the plain run: the process was killed by signal 9"));
  CHECK_THAT(killed, ContainsSubstring("(and again in a fresh process)"));
  CHECK_THAT(thrown_by(script("echo out of luck >&2; exit 7")),
             ContainsSubstring("exit status 7") && ContainsSubstring("out of luck"));
}

TEST_CASE("what a process did once only is told apart") {
  // The first process dies at its first request; the next one finds the file and answers.
  const std::string once =
      "t=\"${TMPDIR:-/tmp}/rematch-once-$PPID\"; if [ -e \"$t\" ]; then rm -f "
      "\"$t\"; " +
      answer("\"record\":{\"format\":1}") + "; else : > \"$t\"; exit 3; fi";
  const std::string what = thrown_by(script(once));
  CHECK_THAT(what, ContainsSubstring("exit status 3"));
  CHECK_THAT(what, ContainsSubstring("(not again in a fresh process)"));
}

TEST_CASE("a process that does not answer in time is ended, with all that it started") {
  const std::string hung = thrown_by(script("cat <&3 >/dev/null & wait"), {.run_seconds = 0.2});
  CHECK_THAT(hung, ContainsSubstring("no answer within 0.2 s"));
}

TEST_CASE("state that leaks from case to case is seen in a fresh process") {
  const std::string hello =
      R"({"hello":{"protocol":1,"name":"mine","implements":["linear"],"observes":["rng_state"]}})";
  // Counts its runs, and says the count as the seed of a random state.
  const std::string counting = script(
      "n=$((${n:-0}+1)); printf '{\"answer\":{\"id\":%s,\"record\":{\"format\":1,\"streams\":"
      "[{\"moment\":\"after_forward\",\"seed\":%s}]}}}\\n' \"$id\" \"$n\" >&4",
      hello);
  ProcessSubject leaking(counting, {.cases_per_fresh_repeat = 8});
  ProcessSubject clean(script(answer("\"record\":{\"format\":1}"), hello),
                       {.cases_per_fresh_repeat = 8});
  Workspace workspace;
  const LawSet repeatable = laws_named({"repeatable"});
  Case c = one_linear();
  std::size_t violated = 0;
  for (std::uint64_t seed = 1; seed <= 16; ++seed) {
    c.seed = seed;
    if (!judge_case(c, leaking, workspace, repeatable).kept()) ++violated;
    CHECK(judge_case(c, clean, workspace, repeatable).kept());
  }
  CHECK(violated == 2);
}

TEST_CASE("a subject that rounds differently is not asked for hashes of recomputed values") {
  const ProcessSubject subject(
      script(":", R"({"hello":{"protocol":1,"name":"x","implements":[],"observes":["outputs",)"
                  R"("recomputed_values"],"rounds":"differently"}})"));
  CHECK(subject.declares().rounds_differently);
  CHECK(subject.declares().observes == Observables{Observable::outputs});
}

TEST_CASE("a subject that compiles has more time for a run, and its cases share their shapes") {
  const ProcessLimits limits{.run_seconds = 0.2, .compiling_run_seconds = 0.3};
  const std::string compiling =
      R"({"hello":{"protocol":1,"name":"x","implements":["linear"],"observes":[],)"
      R"("cases_per_shape":50}})";
  CHECK(ProcessSubject(script(":", compiling)).declares().scope.cases_per_shape == 50);
  const std::string hanging = "cat <&3 >/dev/null";
  CHECK_THAT(thrown_by(script(hanging, compiling), limits),
             ContainsSubstring("no answer within 0.3 s"));
  CHECK_THAT(thrown_by(script(hanging), limits), ContainsSubstring("no answer within 0.2 s"));
}

TEST_CASE("answers that are none are refused with what was expected") {
  const auto refused = [](const std::string& then, const std::string& message) {
    INFO(then);
    CHECK_THAT(thrown_by(script(then)), ContainsSubstring(message));
  };
  refused("echo garbage >&4", "expected JSON");
  refused("echo '{}' >&4", "expected {\"answer\": {...}}");
  refused("echo '{\"answer\":{\"id\":12,\"record\":{\"format\":1}}}' >&4", "answer.id");
  refused(answer("\"record\":{}"), "answer.record.format");
  refused(answer("\"record\":{\"format\":1,\"spam\":1}"), "unknown field \"spam\"");
  refused(answer("\"record\":{\"format\":1,\"observations\":[{\"quantity\":"
                 "\"loss\",\"shape\":[],\"as\":true}]}"),
          "an array that the run before had");
  refused("echo '{}' >&4; echo '{}' >&4", "expected");
}

TEST_CASE("what a subject prints does no harm, however much it is") {
  const std::string noisy =
      "i=0; while [ $i -lt 3000 ]; do i=$((i+1)); echo '{\"answer\": {\"id\": 0, \"lies\": "
      "\"0123456789012345678901234567\"}}'; echo and to stderr >&2; done; ";
  CHECK(thrown_by(script(noisy + answer("\"record\":{\"format\":1}"))) == "none");
}

TEST_CASE("a subject may say that it cannot run a case, or that it is broken itself") {
  ProcessSubject narrow(script(answer("\"unsupported\":\"no linear layers today\"")));
  Record record;
  const Geometry geometry = validate(one_linear());
  CHECK_THROWS_AS(narrow.run(one_linear(), geometry, {}, record), NotJudged);
  Workspace workspace;
  CHECK_THROWS_AS(gather(one_linear(), narrow, workspace), NotJudged);

  ProcessSubject broken(script(answer("\"error\":\"numpy is missing\"")));
  CHECK_THROWS_AS(gather(one_linear(), broken, workspace), SubjectBroken);
}

TEST_CASE("a process that does not say hello as it should is refused before anything is run") {
  CHECK_THAT(refusal_of("no-such-program now"), ContainsSubstring("exit status 127"));
  CHECK_THAT(refusal_of("exit 0 # at once"), ContainsSubstring("exit status 0"));
  const auto refused = [](const std::string& hello, const std::string& message) {
    INFO(hello);
    CHECK_THAT(refusal_of(script(":", hello)), ContainsSubstring(message));
  };
  refused(R"({"hello":{"protocol":2}})", "hello.protocol: expected 1, got 2");
  refused(R"({"hello":{"protocol":1,"implements":[],"observes":[]}})", "hello.name");
  refused(R"({"hello":{"protocol":1,"name":"x","implements":["lego"],"observes":[]}})",
          "hello.implements[0]");
  refused(R"({"hello":{"protocol":1,"name":"x","implements":[],"observes":["moods"]}})",
          "hello.observes[0]");
  refused(R"({"hello":{"protocol":1,"name":"x","implements":[],"observes":[],"hobby":1}})",
          "unknown field \"hobby\"");
  refused(R"({"hello":{"protocol":1,"name":"x","implements":[],"observes":[],"rounds":"up"}})",
          "hello.rounds: expected \"equal\" or \"differently\"");
  refused(
      R"({"hello":{"protocol":1,"name":"x","implements":[],"observes":[],"cases_per_shape":0}})",
      "hello.cases_per_shape: expected 1 to 4096, got 0");
}

}  // namespace rematch
