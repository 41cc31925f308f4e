// Hunts of a subject that compiles: many cases have the same shape, and differ in their seed and
// training steps.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <regex>
#include <set>
#include <string>
#include <tuple>

#include "properties/case/geometry.h"
#include "properties/case/json.h"
#include "properties/generate/mix.h"
#include "properties/hunt/hunt.h"
#include "properties/hunt/testing/drops.h"
#include "properties/hunt/testing/equal_results.h"
#include "properties/subjects/engine_subject.h"

namespace rematch {
namespace {

using namespace testing;

constexpr std::uint64_t kPerShape = 20;

std::string shape_of(Case c) {
  vary(c, Case{});
  return to_json(c);
}

/// Models that all subjects of a hunt have compiled.
struct Compilations {
  std::mutex mutex;
  std::map<std::string, std::set<const void*>> by;
};

/// An engine that notes which shapes it compiles. With a fault, it counts a run too many where
/// something is dropped and the seed is odd.
class Compiling final : public Subject {
 public:
  explicit Compiling(Compilations& seen, bool faulty = false) : seen_(seen), faulty_(faulty) {
    declaration_.scope.cases_per_shape = kPerShape;
  }
  const Declaration& declares() const override { return declaration_; }
  void run(const Case& c, const Geometry& geometry, const RunRequest& request,
           Record& record) override {
    {
      const std::lock_guard lock(seen_.mutex);
      seen_.by[shape_of(c)].insert(this);
    }
    engine_.run(c, geometry, request, record);
    const bool wrong = faulty_ && request.checkpointed && drops(c) && c.seed % 2 == 1;
    if (wrong && !record.executions.empty()) ++record.executions[0].count;
  }

 private:
  Compilations& seen_;
  bool faulty_;
  Declaration declaration_{.name = "compiling"};
  EngineSubject engine_;
};

HuntOptions hunt_of(Compilations& seen, bool faulty, std::uint64_t cases, int jobs = 2) {
  HuntOptions options;
  options.seed = 31;
  options.cases = cases;
  options.jobs = jobs;
  options.keep_going = true;
  options.make_subject = [&seen, faulty] { return std::make_unique<Compiling>(seen, faulty); };
  return options;
}

/// The fields of a protocol in which two of them differ.
std::set<std::string> differing(const ProtocolSpec& a, const ProtocolSpec& b) {
  std::set<std::string> names;
  const auto look = [&](const auto& field) {
    if constexpr (requires { field.name; }) {
      if (!(a.*field.member == b.*field.member)) names.emplace(field.name);
    }
  };
  std::apply([&](const auto&... fields) { (look(fields), ...); }, FieldsOf<ProtocolSpec>::list);
  return names;
}

std::set<std::string> names_in(const std::string& text, const std::regex& name) {
  std::set<std::string> names;
  for (std::sregex_iterator i(text.begin(), text.end(), name), end; i != end; ++i) {
    names.insert((*i)[1]);
  }
  return names;
}

/// The text of a file of properties/ from `first` up to the next `end`.
std::string text_in(const std::string& file, const std::string& first, const std::string& end) {
  std::ifstream in(REMATCH_SOURCE_DIR "/properties/" + file);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  const std::size_t begin = text.find(first);
  return begin == std::string::npos ? "" : text.substr(begin, text.find(end, begin) - begin);
}

/// Those that PROTOCOL.md says cases of one shape differ in.
std::set<std::string> differing_by_the_protocol() {
  const std::string row = text_in("subjects/PROTOCOL.md", "| `cases_per_shape`", "\n");
  const std::string list = row.substr(row.find("these fields of the protocol: "));
  return names_in(list.substr(0, list.find(". ")), std::regex("`([a-z_]+)`"));
}

/// Those that the Python package leaves out of a shape.
std::set<std::string> differing_by_the_package() {
  return names_in(text_in("python/rematch/subjects/case.py", "def shape_of", "\n\n"),
                  std::regex("\"([a-z_]+)\":"));
}

Scope of_shapes(bool new_plans) { return {everything().features, {}, kPerShape, new_plans}; }

}  // namespace

TEST_CASE("cases of one shape differ in their seed and in their training steps alone") {
  const Scope scope = of_shapes(false);
  std::set<std::uint64_t> seeds;
  std::set<std::string> protocols;
  std::set<std::string> differ;
  for (std::uint64_t i = 0; i < 60 * kPerShape; ++i) {
    Case c = generate_case(Mix::wide, 5, i, scope);
    const Case first = generate_case(Mix::wide, 5, i / kPerShape);
    seeds.insert(c.seed);
    if (i < kPerShape) {
      Case steps;
      vary(steps, c);
      steps.seed = 0;
      protocols.insert(to_json(steps));
    }
    if (i % kPerShape == 0) CHECK(c == first);
    differ.merge(differing(c.protocol, first.protocol));
    vary(c, first);
    CHECK(c == first);
  }
  CHECK(differ == differing_by_the_protocol());
  CHECK(differ == differing_by_the_package());
  CHECK(seeds.size() == 60 * kPerShape);
  CHECK(protocols.size() > kPerShape / 2);
}

TEST_CASE("cases of one shape have new plans where operations are compiled for themselves") {
  const Scope scope = of_shapes(true);
  for (std::uint64_t shape = 0; shape < 60; ++shape) {
    const Case first = generate_case(Mix::wide, 6, shape);
    std::set<std::string> plans;
    for (std::uint64_t i = 0; i < kPerShape; ++i) {
      Case c = generate_case(Mix::wide, 6, shape * kPerShape + i, scope);
      if (i == 0) CHECK(c == first);
      CHECK_NOTHROW(validate(c));
      vary(c, first);
      plans.insert(to_json(c));
      // All but the plan, and what depends on it, is as it was.
      c.plan = first.plan;
      c.protocol.failure = first.protocol.failure;
      c.protocol.partial = first.protocol.partial;
      c.protocol.auxiliary_losses = first.protocol.auxiliary_losses;
      for (std::size_t l = 0; l < c.layers.size(); ++l) {
        c.layers[l].in_place = first.layers[l].in_place;
      }
      CHECK(c == first);
    }
    const bool tail = features_of(first, validate(first)).contains(Feature::more_than_a_few);
    CHECK((tail ? plans.size() == 1 : plans.size() > 3));
  }
}

TEST_CASE("cases of one shape have nothing that the subject does not implement") {
  FeatureSet some =
      FeatureSet::all().without({Feature::custom, Feature::accumulation, Feature::momentum,
                                 Feature::reentrant, Feature::nested_2, Feature::injected_failure});
  const Scope scope(some, {}, kPerShape, true);
  std::set<std::string> shapes;
  for (std::uint64_t i = 0; i < 60 * kPerShape; ++i) {
    const Case c = generate_case(Mix::wide, 7, i, scope);
    CHECK(some.contains_all(features_of(c, validate(c))));
    shapes.insert(shape_of(c));
  }
  // Plans that have something else are not taken, but most have nothing else.
  CHECK(shapes.size() > 60 * 4);
}

TEST_CASE("no two workers of a hunt compile the same shape") {
  Compilations seen;
  const HuntResult result = hunt(hunt_of(seen, false, 60 * kPerShape + 7));
  CHECK(result.cases == 60 * kPerShape + 7);
  CHECK(result.findings.empty());
  std::size_t shared = 0;
  for (const auto& [shape, subjects] : seen.by) shared += subjects.size() - 1;
  // One of few layers may be drawn twice.
  CHECK(seen.by.size() > 50);
  CHECK(shared <= 61 - seen.by.size());
}

TEST_CASE("few shapes do not make a feature seem rarer than its floor") {
  Compilations seen;
  const HuntResult result = hunt(hunt_of(seen, false, 2000));
  CHECK(result.shortfalls.empty());
}

TEST_CASE("cases of one shape that violate one law are shrunk once, and all of them count") {
  Compilations seen;
  const HuntResult one = hunt(hunt_of(seen, true, 30 * kPerShape, 1));
  REQUIRE_FALSE(one.findings.empty());
  std::uint64_t counted = 0;
  for (const Finding& f : one.findings) counted += f.count;
  CHECK(counted == one.violations());
  CHECK(one.violations() > 3 * kPerShape);
  // Violating seeds are odd, so of about half of the cases of a shape.
  const Finding& most = one.findings.front();
  CHECK(most.count > 5);
  check_equal(one, hunt(hunt_of(seen, true, 30 * kPerShape, 3)));
}

TEST_CASE("shapes that violate a law are shrunk up to the limit, however many cases they have") {
  Compilations seen;
  HuntOptions options = hunt_of(seen, true, 30 * kPerShape);
  options.shrunk_per_law = 2;
  const HuntResult result = hunt(options);
  std::set<std::uint64_t> shapes;
  for (const Finding& f : result.findings) shapes.insert(f.index / kPerShape);
  std::uint64_t counted = 0;
  for (const Finding& f : result.findings) counted += f.count;
  // Two shapes, of which some twenty cases violate the law.
  CHECK(shapes.size() <= 2);
  CHECK(counted > 10);
  CHECK(counted < 2 * kPerShape);
}

}  // namespace rematch
