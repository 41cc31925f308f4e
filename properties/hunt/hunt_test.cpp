#include "properties/hunt/hunt.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <mutex>
#include <set>

#include "properties/forecast/testing/small_cases.h"
#include "properties/hunt/testing/drops.h"
#include "properties/hunt/testing/equal_results.h"
#include "properties/subjects/testing/changed.h"

namespace rematch {
namespace {

using namespace testing;

/// Counts one run too many in models with a norm, and one byte too many in those with a tanh.
void two_faults(const Case& c, const RunRequest& request, Record& record) {
  if (!request.checkpointed || record.error) return;
  const auto has = [&](std::string_view kind) {
    return std::any_of(c.layers.begin(), c.layers.end(),
                       [kind](const LayerSpec& l) { return to_string(l.kind) == kind; });
  };
  if (has("layer_norm") || has("batch_norm")) ++record.executions.at(0).count;
  if (has("tanh")) ++record.bytes.at(0).saved;
}

HuntOptions correct(std::uint64_t cases, int jobs = 1) {
  HuntOptions options;
  options.cases = cases;
  options.jobs = jobs;
  options.make_subject = [] { return std::make_unique<EngineSubject>(); };
  return options;
}

HuntOptions changed(HuntOptions options, const Changed::Change& change) {
  options.make_subject = [=] { return std::make_unique<Changed>(Declaration{}, change); };
  return options;
}

/// Of an engine that adds a layer run to the checkpointed record of chosen cases.
HuntOptions miscounting(std::uint64_t cases, int jobs, bool (*chosen)(const Case&)) {
  return changed(correct(cases, jobs),
                 [=](const Case& c, const RunRequest& request, Record& record) {
                   if (request.checkpointed && chosen(c)) ++record.executions.at(0).count;
                 });
}

}  // namespace

TEST_CASE("the result of a hunt does not depend on the number of jobs") {
  const HuntResult one = hunt(correct(500, 1));
  CHECK(one.cases == 500);
  check_equal(one, hunt(correct(500, 2)));
  check_equal(one, hunt(correct(500, 7)));
}

TEST_CASE("a finding is that of the lowest case, whatever the number of jobs") {
  // Every case with a dropout violates, so that late workers find violations, too.
  const HuntResult one = hunt(miscounting(1000, 1, drops));
  REQUIRE(one.findings.size() == 1);
  CHECK(one.findings[0].index + 1 == one.cases);
  CHECK(one.violations() == 1);
  for (std::uint64_t i = 0; i < one.findings[0].index; ++i) {
    CHECK_FALSE(drops(generate_case(Mix::wide, 1, i)));
  }
  CHECK(one.findings[0].smallest.layers.size() == 1);
  check_equal(one, hunt(miscounting(1000, 4, drops)));
}

TEST_CASE("a hunt that keeps going judges every case and counts what violates") {
  HuntOptions options = miscounting(300, 1, drops);
  options.keep_going = true;
  options.shrunk_per_law = 5;
  const HuntResult one = hunt(options);
  CHECK(one.cases == 300);
  std::uint64_t expected = 0;
  for (std::uint64_t i = 0; i < 300; ++i) expected += drops(generate_case(Mix::wide, 1, i)) ? 1 : 0;
  CHECK(one.violations() == expected);
  CHECK(one.first_violated[index_of(*find_law("executions"))] == expected);
  // All shrink to one model.
  REQUIRE(one.findings.size() == 1);
  CHECK(one.findings[0].count == 5);
  CHECK(one.findings[0].smallest.layers.size() == 1);
  options.jobs = 4;
  check_equal(one, hunt(options));
}

TEST_CASE("findings of different laws, and of different models, are told apart") {
  HuntOptions options = changed(correct(200), two_faults);
  options.keep_going = true;
  options.shrunk_per_law = 32;
  const HuntResult result = hunt(options);
  std::set<std::string_view> norms;
  std::uint64_t shrunk = 0;
  for (const Finding& f : result.findings) {
    shrunk += f.count;
    if (f.violation.law == "executions") norms.insert(to_string(f.smallest.layers.back().kind));
  }
  CHECK(norms == std::set<std::string_view>{"layer_norm", "batch_norm"});
  CHECK(result.findings.front().violation.law == "executions");
  CHECK(result.findings.front().count >= result.findings[1].count);
  CHECK(result.findings.back().violation.law == "saved-bytes");
  // Few of those that were shrunk are different.
  CHECK(shrunk <= 64);
  CHECK(result.findings.size() < 10);
}

TEST_CASE("the first violation of each law is said before anything is shrunk") {
  HuntOptions options = miscounting(1000, 2, drops);
  options.shrink.steps = 0;
  std::vector<std::uint64_t> said;
  options.found = [&](const ViolatingCase& found) {
    CHECK(found.violation.law == "executions");
    CHECK(drops(found.c));
    said.push_back(found.index);
  };
  const HuntResult result = hunt(options);
  CHECK(said.size() == 1);
  CHECK(result.findings.size() == 1);
}

TEST_CASE("every case of a hunt is run once") {
  std::mutex mutex;
  std::multiset<std::uint64_t> seen;
  HuntOptions options = correct(100, 3);
  options.generate = [&](std::uint64_t index) {
    const std::lock_guard lock(mutex);
    seen.insert(index);
    return tanh_chain(2);
  };
  CHECK(hunt(options).cases == 100);
  CHECK(seen.size() == 100);
  CHECK(std::set(seen.begin(), seen.end()).size() == 100);
}

TEST_CASE("a hunt of no case fails") {
  const HuntResult result = hunt(correct(0));
  CHECK(result.cases == 0);
  CHECK_FALSE(result.passed());
  CHECK(result.shortfalls.size() == 1);
}

TEST_CASE("a feature that stays below its floor fails the hunt, by name") {
  HuntOptions options = correct(2000);
  options.generate = [](std::uint64_t) { return tanh_chain(2); };
  const HuntResult result = hunt(options);
  CHECK(result.findings.empty());
  CHECK_FALSE(result.passed());
  bool named = false;
  for (const std::string& s : result.shortfalls) named = named || s.find("conv2d") < s.size();
  CHECK(named);
}

TEST_CASE("a restricted subject is not held to features that hardly any of its cases can have") {
  for (const Mix mix : {Mix::standard, Mix::wide}) {
    for (const Feature missing : {Feature::dropout, Feature::linear, Feature::flatten,
                                  Feature::images, Feature::early_stop, Feature::unused_output}) {
      const FeatureSet within = FeatureSet::all().without({missing});
      INFO(to_string(mix) << " without " << to_string(missing));
      std::array<double, kFeatureCount> found{};
      for (std::uint64_t i = 0; i < 2000; ++i) {
        const Case c = generate_case(mix, 77, i, within);
        features_of(c, validate(c)).for_each([&](Feature f) { ++found[std::size_t(f)]; });
      }
      within.for_each([&](Feature f) {
        INFO(to_string(f));
        CHECK(found[std::size_t(f)] >= 2000 * floor(mix, f, within));
      });
    }
  }
}

TEST_CASE("what was found stands even where the hunt itself fails afterwards") {
  HuntOptions options = miscounting(400, 2, drops);
  options.keep_going = true;
  options.generate = [](std::uint64_t index) -> Case {
    if (index > 200) throw std::runtime_error("no more cases");
    return generate_case(Mix::wide, 5, index);
  };
  const HuntResult result = hunt(options);
  CHECK(result.error == "no more cases");
  CHECK_FALSE(result.findings.empty());
  CHECK_FALSE(result.passed());
}

TEST_CASE("a stopped hunt keeps what it found and says so") {
  std::atomic<bool> stop{false};
  HuntOptions options = correct(100000, 2);
  options.stop = &stop;
  options.generate = [&](std::uint64_t index) {
    if (index == 40) stop = true;
    return tanh_chain(2);
  };
  const HuntResult result = hunt(options);
  CHECK(result.interrupted);
  CHECK(result.cases > 40);
  CHECK(result.cases < 100000);
}

TEST_CASE("a hunt with a time limit ends without a number of cases") {
  HuntOptions options = correct(0);
  options.cases.reset();
  options.seconds = 0.05;
  CHECK(hunt(options).cases > 0);
}

TEST_CASE("a subject that throws is a finding, not an end of the hunt") {
  const HuntResult result =
      hunt(changed(correct(10, 2), [](const Case&, const RunRequest&, Record&) {
        throw std::runtime_error("the subject fell over");
      }));
  REQUIRE(result.findings.size() == 1);
  CHECK(result.findings[0].violation.law == "survives");
  CHECK(result.findings[0].violation.got.find("fell over") != std::string::npos);
}

TEST_CASE("a subject that cannot be made ends the hunt with its error") {
  HuntOptions options = correct(10, 2);
  options.make_subject = []() -> std::unique_ptr<Subject> {
    throw std::invalid_argument("no such device");
  };
  CHECK_THROWS_AS(hunt(options), std::invalid_argument);
}

TEST_CASE("a hunt judges by the laws that are asked for, and by those about failures") {
  HuntOptions options = correct(100);
  options.laws = laws_named({"outputs", "losses"});
  const HuntResult result = hunt(options);
  CHECK(result.passed());
  for (std::size_t i = 0; i < laws().size(); ++i) {
    const Law& law = laws()[i];
    // The engine is not asked to repeat itself.
    if (law.name == "repeatable") continue;
    const bool asked = options.laws[i] || law.judges_failures;
    CHECK(result.verdicts[i] == (asked ? VerdictCounts{100, 0, 0, 0} : VerdictCounts{0, 0, 0, 0}));
  }
}

TEST_CASE("a hunt in which no law had anything to judge does not pass") {
  HuntOptions options = correct(100);
  options.laws = laws_named({"repeatable"});
  const HuntResult result = hunt(options);
  CHECK(result.findings.empty());
  CHECK_FALSE(result.passed());
  REQUIRE(result.shortfalls.size() == 1);
  CHECK(result.shortfalls[0].find("nothing was checked") != std::string::npos);
}

TEST_CASE("a hunt's arguments are checked") {
  HuntOptions options = correct(10, 0);
  CHECK_THROWS_AS(hunt(options), std::invalid_argument);
  options.jobs = 1;
  options.make_subject = nullptr;
  CHECK_THROWS_AS(hunt(options), std::invalid_argument);
}

}  // namespace rematch
