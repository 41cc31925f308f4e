#include "properties/hunt/worker_process.h"

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>
#include <string>

#include "properties/hunt/registry.h"
#include "properties/testing/shell.h"

namespace rematch {
namespace {

using testing::contains;
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

void check_equal(const HuntResult& a, const HuntResult& b) {
  CHECK(a.cases == b.cases);
  CHECK(a.features == b.features);
  CHECK(a.verdicts == b.verdicts);
  CHECK(a.first_violated == b.first_violated);
  CHECK(a.record_hash == b.record_hash);
  CHECK(a.error == b.error);
  REQUIRE(a.findings.size() == b.findings.size());
  for (std::size_t i = 0; i < a.findings.size(); ++i) {
    CHECK(to_json(a.findings[i]) == to_json(b.findings[i]));
  }
}

/// A worker in the language of the shell, which can judge no case: in the hunt it does `at_once`,
/// and when it tries one alone `alone`, with the request in $line. Both may `answer` with an empty
/// tally.
HuntOptions scripted(const ScratchFolder& folder, const std::string& at_once,
                     const std::string& alone) {
  std::string features;
  FeatureSet::all().for_each([&](Feature f) {
    features += (features.empty() ? "\"" : ",\"") + std::string(to_string(f)) + '"';
  });
  Tally empty;
  empty.cases = 1;
  const std::string script = folder.write(
      "worker.sh", "answer() { printf '%s\\n' '{\"tally\":" + to_json(empty) + "}' >&4; }\n" +
                       "while read -r line <&3; do\n  case $line in\n" +
                       "  *hello*) printf '%s\\n' '{\"hello\":{\"versions\":{},\"implements\":[" +
                       features + "]}}' >&4 ;;\n  *judge_case*) " + alone + " ;;\n  *) " + at_once +
                       " ;;\n  esac\ndone\n");
  HuntOptions options = for_subject("engine", 80);
  options.worker = "sh '" + script + "'";
  options.shrink.steps = 20;
  return options;
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
      "printf '{\"hello\":{\"versions\":{\"it\":\"2\"},\"implements\":[\"dropout\"]}}\\n' >&4\n");
  options.worker = "sh '" + script + "'";
  const ProcessWorker limited(options);
  CHECK(limited.scope() == Scope(FeatureSet{*feature_named("dropout")}));
  CHECK(limited.versions() == Versions{{"it", "2"}});
}

TEST_CASE("what a worker cannot start for ends the hunt with the worker's words") {
  HuntOptions options = in_processes(for_subject("engine", 10), "engine", 2);
  options.worker += " --device nowhere";
  try {
    (void)hunt(options);
    FAIL("no error");
  } catch (const std::exception& error) {
    CHECK(contains(error.what(), "nowhere"));
  }
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

TEST_CASE("of a worker that dies without a word each case that it had is tried") {
  const ScratchFolder folder;
  const HuntResult r = hunt(scripted(
      folder, "kill -9 $$", "case $line in *'\"index\":3}'*) kill -9 $$ ;; *) answer ;; esac"));
  INFO(r.error);
  CHECK(contains(r.error, "killed by signal 9"));
  CHECK(contains(r.error, "in flight: cases 0, 1, 2, 3, 4, 5, 6, 7"));
  CHECK(contains(r.error, "cases 0, 1, 2, 4, 5, 6, 7: innocent"));
  REQUIRE(r.findings.size() == 1);
  CHECK(r.findings[0].index == 3);
}

TEST_CASE("workers that die at once, as clients of one MPS server do, are looked into together") {
  const ScratchFolder folder;
  // The first to come waits for the other, and both die.
  HuntOptions options =
      scripted(folder,
               "echo >> '" + (folder.path() / "here").string() + "'; while [ $(wc -l < '" +
                   (folder.path() / "here").string() + "') -lt 2 ]; do :; done; kill -9 $$",
               "answer");
  options.jobs = 2;
  const HuntResult r = hunt(options);
  INFO(r.error);
  CHECK(contains(r.error, "2 workers were lost"));
  CHECK(contains(r.error, "cases 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15: innocent"));
  CHECK(r.findings.empty());
}

}  // namespace rematch
