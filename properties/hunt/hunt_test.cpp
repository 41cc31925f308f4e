#include "properties/hunt/hunt.h"

#include <catch2/catch_test_macros.hpp>
#include <mutex>
#include <set>

#include "properties/forecast/testing/small_cases.h"
#include "properties/subjects/engine_subject.h"

namespace rematch {
namespace {

using namespace testing;

/// An engine that adds a layer run to the checkpointed record of chosen cases.
class Miscounting final : public Subject {
 public:
  explicit Miscounting(std::function<bool(const Case&)> chosen) : chosen_(std::move(chosen)) {}
  std::string_view name() const override { return "miscounting"; }
  void run(const Case& c, const Geometry& geometry, const RunRequest& request,
           Record& record) override {
    engine_.run(c, geometry, request, record);
    if (request.checkpointed && chosen_(c)) ++record.executions.at(0).count;
  }

 private:
  EngineSubject engine_;
  std::function<bool(const Case&)> chosen_;
};

class Throwing final : public Subject {
 public:
  std::string_view name() const override { return "throwing"; }
  void run(const Case&, const Geometry&, const RunRequest&, Record&) override {
    throw std::runtime_error("the subject fell over");
  }
};

HuntOptions correct(std::uint64_t cases, int jobs = 1) {
  HuntOptions options;
  options.cases = cases;
  options.jobs = jobs;
  options.make_subject = [] { return std::make_unique<EngineSubject>(); };
  return options;
}

HuntOptions miscounting(std::uint64_t cases, int jobs, std::function<bool(const Case&)> chosen) {
  HuntOptions options = correct(cases, jobs);
  options.make_subject = [chosen = std::move(chosen)] {
    return std::make_unique<Miscounting>(chosen);
  };
  return options;
}

void check_equal(const HuntResult& a, const HuntResult& b) {
  CHECK(a.cases == b.cases);
  CHECK(a.features == b.features);
  CHECK(a.checks == b.checks);
  CHECK(a.record_hash == b.record_hash);
  CHECK(a.shortfalls == b.shortfalls);
  REQUIRE(a.failure.has_value() == b.failure.has_value());
  if (!a.failure) return;
  CHECK(a.failure->index == b.failure->index);
  CHECK(a.failure->original == b.failure->original);
  CHECK(a.failure->smallest == b.failure->smallest);
  CHECK(a.failure->breach.law == b.failure->breach.law);
  CHECK(a.failure->breach.place == b.failure->breach.place);
}

}  // namespace

TEST_CASE("the result of a hunt does not depend on the number of jobs") {
  const HuntResult one = hunt(correct(500, 1));
  CHECK(one.cases == 500);
  check_equal(one, hunt(correct(500, 2)));
  check_equal(one, hunt(correct(500, 7)));
}

TEST_CASE("a failure is that of the lowest case, whatever the number of jobs") {
  // Every case with a dropout fails, so that late workers find failures, too.
  const auto drops = [](const Case& c) {
    return std::any_of(c.layers.begin(), c.layers.end(),
                       [](const LayerSpec& l) { return l.kind == LayerKind::dropout; });
  };
  const HuntResult one = hunt(miscounting(1000, 1, drops));
  REQUIRE(one.failure);
  CHECK(one.failure->index + 1 == one.cases);
  for (std::uint64_t i = 0; i < one.failure->index; ++i) {
    CHECK_FALSE(drops(generate_case(Mix::wide, 1, i)));
  }
  CHECK(one.failure->smallest.layers.size() == 1);
  check_equal(one, hunt(miscounting(1000, 4, drops)));
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

TEST_CASE("a promised feature that stays below its floor fails the hunt, by name") {
  HuntOptions options = correct(50);
  options.floors_from = 50;
  options.generate = [](std::uint64_t) { return tanh_chain(2); };
  const HuntResult result = hunt(options);
  CHECK_FALSE(result.failure);
  CHECK_FALSE(result.passed());
  bool named = false;
  for (const std::string& s : result.shortfalls) named = named || s.find("conv2d") < s.size();
  CHECK(named);
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
  HuntOptions options = correct(10, 2);
  options.make_subject = [] { return std::make_unique<Throwing>(); };
  const HuntResult result = hunt(options);
  REQUIRE(result.failure);
  CHECK(result.failure->breach.law == kNoAnswer);
  CHECK(result.failure->breach.got.find("fell over") != std::string::npos);
}

TEST_CASE("a subject that cannot be made ends the hunt with its error") {
  HuntOptions options = correct(10, 2);
  options.make_subject = []() -> std::unique_ptr<Subject> {
    throw std::invalid_argument("no such device");
  };
  CHECK_THROWS_AS(hunt(options), std::invalid_argument);
}

TEST_CASE("a hunt for one law checks that law alone") {
  HuntOptions options = correct(100);
  options.only = find_law("outputs");
  const HuntResult result = hunt(options);
  for (std::size_t i = 0; i < laws().size(); ++i) {
    CHECK(result.checks[i] == (laws()[i].name == "outputs" ? 100 : 0));
  }
}

TEST_CASE("a hunt's arguments are checked") {
  HuntOptions options = correct(10, 0);
  CHECK_THROWS_AS(hunt(options), std::invalid_argument);
  options.jobs = 1;
  options.make_subject = nullptr;
  CHECK_THROWS_AS(hunt(options), std::invalid_argument);
}

}  // namespace rematch
