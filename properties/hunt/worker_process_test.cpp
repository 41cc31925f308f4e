#include "properties/hunt/worker_process.h"

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "properties/hunt/registry.h"
#include "properties/hunt/testing/equal_results.h"
#include "properties/testing/outcome.h"

namespace rematch {
namespace {

using testing::check_equal;
using testing::contains;
using testing::message_of;
using testing::ScratchFolder;

HuntOptions for_subject(const std::string& name, std::uint64_t cases) {
  HuntOptions options;
  options.cases = cases;
  options.seed = 3;
  options.make_subject = [name] { return make_subject(name); };
  return options;
}

HuntOptions in_processes(HuntOptions options, const std::string& subject, int jobs) {
  options.worker = "'" REMATCH_PROGRAM "' work --mix wide --seed 3 --subject " + subject +
                   (options.keep_going ? " --keep-going" : "");
  options.jobs = jobs;
  return options;
}

/// A worker in the language of the shell, which can judge no case: in the hunt it does `at_once`,
/// and when it tries one alone `alone`, with the request in $line. Both may `answer` with an empty
/// tally, or with the text of a file.
HuntOptions scripted(const ScratchFolder& folder, const std::string& at_once,
                     const std::string& alone) {
  std::string features;
  FeatureSet::all().for_each([&](Feature f) {
    features += (features.empty() ? "\"" : ",\"") + std::string(to_string(f)) + '"';
  });
  Tally empty;
  empty.cases = 1;
  folder.write("empty", "{\"tally\":" + to_json(empty) + "}\n");
  const std::string script = folder.write(
      "worker.sh", "cd '" + folder.path().string() +
                       "'\nanswer() { cat \"${1:-empty}\" >&4; }\n"
                       "while read -r line <&3; do\n  case $line in\n" +
                       "  *hello*) printf '%s\\n' '{\"hello\":{\"versions\":{},\"implements\":[" +
                       features + "]}}' >&4 ;;\n  *judge_case*) " + alone + " ;;\n  *) " + at_once +
                       " ;;\n  esac\ndone\n");
  HuntOptions options = for_subject("engine", 80);
  options.worker = "sh '" + script + "'";
  options.shrink.steps = 20;
  return options;
}

/// That case of the hunt violates a law.
ViolatingCase violating(std::uint64_t index) {
  return {index, generate_case(Mix::wide, 3, index), {"losses", "step 0", "1", "2"}};
}

/// The answer of a worker that found so.
std::string answer_of(const ViolatingCase& found) {
  Tally tally;
  tally.cases = 1;
  tally.violating.push_back(found);
  return "{\"tally\":" + to_json(tally) + "}\n";
}

constexpr const char* kLost = R"(printf '{"lost":{"index":5,"what":"the device is lost"}}\n' >&4)";

}  // namespace

TEST_CASE("a hunt in processes comes to what a hunt in threads comes to") {
  const HuntOptions right = for_subject("engine", 300);
  const HuntResult threads = hunt(right);
  REQUIRE(threads.passed());
  check_equal(threads, hunt(in_processes(right, "engine", 1)));
  check_equal(threads, hunt(in_processes(right, "engine", 3)));
}

TEST_CASE("a hunt in processes finds and shrinks what a hunt in threads does") {
  HuntOptions wrong = for_subject("engine:S1", 200);
  for (const bool keep_going : {false, true}) {
    wrong.keep_going = keep_going;
    const HuntResult threads = hunt(wrong);
    REQUIRE(!threads.findings.empty());
    check_equal(threads, hunt(in_processes(wrong, "engine:S1", 2)));
  }
}

TEST_CASE("cases of a hunt have what its workers implement") {
  const ScratchFolder folder;
  HuntOptions options = in_processes(for_subject("engine", 10), "engine", 1);
  CHECK(ProcessWorker(options).scope() == everything());
  const std::string script = folder.write(
      "worker.sh",
      "read -r line <&3\n"
      "printf '{\"hello\":{\"versions\":{\"it\":\"2\"},\"implements\":[\"dropout\"],"
      "\"options\":{\"poison\":[\"late\",\"at_once\"]},\"shares\":{\"poison\":0.25}}}\\n' >&4\n");
  options.worker = "sh '" + script + "'";
  const ProcessWorker limited(options);
  Scope expected = FeatureSet{*feature_named("dropout")};
  expected.options = {{"poison", {"late", "at_once"}, 0.25}};
  CHECK(limited.scope() == expected);
  CHECK(limited.versions() == Versions{{"it", "2"}});
}

TEST_CASE("what a worker cannot start for ends the hunt with the worker's words") {
  HuntOptions options = in_processes(for_subject("engine", 10), "engine", 2);
  options.worker += " --device nowhere";
  CHECK(contains(message_of([&] { (void)hunt(options); }), "nowhere"));
}

TEST_CASE("a case that loses the device alone as well is the finding") {
  const ScratchFolder folder;
  const HuntResult r = hunt(scripted(folder, kLost, kLost));
  CHECK_FALSE(r.passed());
  REQUIRE(r.findings.size() == 1);
  CHECK(r.findings[0].violation.law == "survives");
  CHECK(r.findings[0].violation.got == "the device is lost");
  CHECK(r.findings[0].index == 5);
  CHECK(r.findings[0].original == generate_case(Mix::wide, 3, 5));
  // Every candidate loses it.
  CHECK(r.findings[0].smallest.layers.size() <= r.findings[0].original.layers.size());
  CHECK_FALSE(r.findings[0].smallest == r.findings[0].original);
  CHECK(contains(r.error, "in flight: case 5"));
  CHECK(r.cases == 0);
}

TEST_CASE("cases that were in flight and lose nothing alone are innocent, and nothing is found") {
  const ScratchFolder folder;
  const HuntResult r = hunt(scripted(folder, kLost, "answer"));
  CHECK_FALSE(r.passed());
  CHECK(r.findings.empty());
  CHECK(contains(r.error, "case 5: innocent"));
  CHECK(contains(r.error, "none of them does it alone"));
}

TEST_CASE("of a worker that dies without a word only the case that it had is tried") {
  const ScratchFolder folder;
  const HuntResult r = hunt(scripted(
      folder, "case $line in *'\"begin\":3,'*) kill -9 $$ ;; *) answer ;; esac", "kill -9 $$"));
  INFO(r.error);
  CHECK(contains(r.error, "killed by signal 9"));
  CHECK(contains(r.error, "in flight: case 3;"));
  REQUIRE(r.findings.size() == 1);
  CHECK(r.findings[0].index == 3);
}

TEST_CASE("workers that die at once, as clients of one MPS server do, are looked into together") {
  const ScratchFolder folder;
  // The first to come waits for the other, and both die.
  HuntOptions options = scripted(
      folder, "echo >> here; while [ $(wc -l < here) -lt 2 ]; do :; done; kill -9 $$", "answer");
  options.jobs = 2;
  const HuntResult r = hunt(options);
  INFO(r.error);
  CHECK(contains(r.error, "2 workers were lost"));
  CHECK(contains(r.error, "cases 0, 8: innocent"));
  CHECK(r.findings.empty());
}

TEST_CASE("what was found stays found where a case before it lost its worker") {
  const ScratchFolder folder;
  folder.write("found", answer_of(violating(8)));
  HuntOptions options = scripted(folder,
                                 "case $line in\n"
                                 "*'\"begin\":0,'*) until [ -e said ]; do :; done; kill -9 $$ ;;\n"
                                 "*'\"begin\":8,'*) answer found; : > said ;;\n"
                                 "*shrink*) kill -9 $$ ;;\n"
                                 "*) answer ;;\nesac",
                                 "answer");
  options.jobs = 2;
  const HuntResult r = hunt(options);
  INFO(r.error);
  CHECK(contains(r.error, "case 0: innocent"));
  REQUIRE(r.findings.size() == 1);
  CHECK(r.findings[0].index == 8);
  CHECK(r.findings[0].violation.law == "losses");
  CHECK(r.cases == 0);
}

TEST_CASE("a worker that is lost while it shrinks costs the shrinking of that case alone") {
  const ScratchFolder folder;
  folder.write("first", answer_of(violating(0)));
  folder.write("second", answer_of(violating(8)));
  const ViolatingCase second = violating(8);
  const Case smallest = generate_case(Mix::wide, 3, 1);
  folder.write("shrunk",
               "{\"finding\":" + to_json(Finding{second.violation, 8, second.c, smallest}) + "}\n");
  HuntOptions options = scripted(folder,
                                 "case $line in\n"
                                 "*shrink*'\"index\":0,'*) kill -9 $$ ;;\n"
                                 "*shrink*) answer shrunk ;;\n"
                                 "*'\"begin\":0,'*) answer first ;;\n"
                                 "*'\"begin\":8,'*) answer second ;;\n"
                                 "*) answer ;;\nesac",
                                 "answer");
  options.cases = 9;
  options.keep_going = true;
  const HuntResult r = hunt(options);
  CHECK(contains(r.error, "case 0 was not shrunk"));
  CHECK(contains(r.error, "killed by signal 9"));
  REQUIRE(r.findings.size() == 2);
  CHECK(r.findings[0].index == 0);
  CHECK(r.findings[1].index == 8);
  CHECK(r.findings[1].smallest == smallest);
}

TEST_CASE("no worker is started for a hunt that was stopped") {
  std::atomic<bool> stop{false};
  HuntOptions options = in_processes(for_subject("engine:S1", 200), "engine:S1", 1);
  options.stop = &stop;
  options.found = [&](const ViolatingCase&) { stop = true; };
  const HuntResult r = hunt(options);
  CHECK(r.error.empty());
  CHECK(r.interrupted);
  REQUIRE(r.findings.size() == 1);
  CHECK(r.findings[0].smallest == r.findings[0].original);
}

TEST_CASE("a worker that is lost after the hunt was stopped is an interruption") {
  const ScratchFolder folder;
  HuntOptions options =
      scripted(folder, ": > here; until [ -e stopped ]; do :; done; kill -9 $$", "answer");
  std::atomic<bool> stop{false};
  options.stop = &stop;
  options.progress = [&](const HuntProgress&) {
    if (stop || !std::filesystem::exists(folder.path() / "here")) return;
    stop = true;
    folder.write("stopped", "");
  };
  const HuntResult r = hunt(options);
  CHECK(r.error.empty());
  CHECK(r.interrupted);
  CHECK(r.findings.empty());
}

TEST_CASE("where the law about survival is left out, a lost worker is an error and no finding") {
  const ScratchFolder folder;
  HuntOptions options = scripted(folder, kLost, kLost);
  options.laws &= ~laws_named({"survives"});
  options.failures &= ~laws_named({"survives"});
  const HuntResult r = hunt(options);
  CHECK(r.findings.empty());
  CHECK(contains(r.error, "case 5: lost again"));
  CHECK(contains(r.error, "survives is left out"));
}

TEST_CASE("what a worker printed before it lost the device is told") {
  const ScratchFolder folder;
  const HuntResult r = hunt(
      scripted(folder, std::string("echo at_once; ") + kLost, std::string("echo alone; ") + kLost));
  CHECK(contains(r.error, "it printed:\nat_once"));
  REQUIRE(r.findings.size() == 1);
  CHECK(contains(r.findings[0].violation.got, "it printed:\nalone"));
}

TEST_CASE("a worker is believed only what it was asked") {
  const ScratchFolder folder;
  folder.write("none", "{\"tally\":" + to_json(Tally()) + "}\n");
  CHECK(contains(message_of([&] { (void)hunt(scripted(folder, "answer none", "answer")); }),
                 "cases: expected 1, got 0"));
}

TEST_CASE("a worker's program may have any name") {
  const ScratchFolder folder;
  std::filesystem::create_directory(folder.path() / "a=b");
  std::filesystem::create_symlink(REMATCH_PROGRAM, folder.path() / "a=b" / "rematch");
  HuntOptions options = for_subject("engine", 1);
  options.worker = "'" + folder.path().string() + "/a=b/rematch' work --seed 3";
  CHECK(ProcessWorker(options).scope() == everything());
  CHECK(ProcessWorker(options, "A=1").scope() == everything());
}

TEST_CASE("a worker that is asked before it was greeted answers with an error") {
  const HuntOptions options = for_subject("engine", 1);
  for (const std::string request :
       {R"({"judge":{"begin":0,"end":1}})", R"({"shrink":{}})", R"({"judge_case":{}})"}) {
    bool asked = false;
    std::string answered;
    serve_worker(
        options,
        [&]() -> std::optional<std::string_view> {
          if (std::exchange(asked, true)) return std::nullopt;
          return request;
        },
        [&](const std::string& text) { answered = text; });
    CHECK(contains(answered, "hello"));
  }
}

}  // namespace rematch
