#include "properties/hunt/profile.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <fstream>
#include <limits>

#include "properties/case/json.h"
#include "properties/faults/fault.h"
#include "properties/hunt/hunt.h"
#include "properties/subjects/engine_subject.h"
#include "properties/testing/outcome.h"

namespace rematch {
namespace {

using Catch::Matchers::ContainsSubstring;
using testing::ScratchFolder;

/// A hunt of the engine with fault S1, which updates the states of layers twice.
HuntOptions hunt_of_updates(const KnownDivergence& known) {
  HuntOptions o;
  o.seed = 11;
  o.cases = 400;
  o.jobs = 2;
  o.keep_going = true;
  o.shrunk_per_law = 3;
  o.profile = Profile({known});
  o.make_subject = [] { return std::make_unique<EngineSubject>(find_fault("S1")->make); };
  return o;
}

KnownDivergence twice() {
  return {.id = "twice",
          // Later forwards read the state that moved on twice.
          .laws = {"buffers-after-step", "reevaluation", "outputs", "losses", "input-gradients",
                   "parameter-gradients", "parameters-after-step", "recomputed-values",
                   "dropout-masks"},
          .when = {Feature::stateful_layer},
          .why = "It is so."};
}

std::string complaint(const std::string& text) {
  const ScratchFolder folder;
  const auto file = folder.path() / "profile.json";
  std::ofstream(file) << text;
  return testing::message_of([&] { (void)load_profile(file); });
}

std::string with_entry(const std::string& fields) {
  return R"({"format": 1, "known": [{"id": "a", "why": "b", "laws": ["losses"])" + fields + "}]}";
}

}  // namespace

TEST_CASE("an entry says whether a bug was reported, what says so of a limit, and since when") {
  KnownDivergence entry = twice();
  entry.promised = true;
  CHECK(entry.report() == "not reported");
  entry.since = "2.9";
  CHECK(entry.report() == "not reported, since 2.9");
  entry.promised = false;
  CHECK(entry.report() == "since 2.9");
  entry.reported = "a page";
  CHECK(entry.report() == "see a page, since 2.9");
}

TEST_CASE("what the profile explains is counted, shrunk once, and no finding") {
  const HuntResult r = hunt(hunt_of_updates(twice()));
  CHECK(r.passed());
  CHECK(r.findings.empty());
  CHECK(r.violations() == 0);
  REQUIRE(r.known.size() == 1);
  CHECK(r.known_of(0) > 10);
  REQUIRE(r.known_findings.size() == 1);
  CHECK(r.known_findings[0].count == r.known_of(0));
  CHECK(r.known_findings[0].smallest.layers.size() == 1);
}

TEST_CASE("a known divergence does not end a hunt that ends at a finding") {
  HuntOptions o = hunt_of_updates(twice());
  o.keep_going = false;
  const HuntResult r = hunt(o);
  CHECK(r.cases == 400);
  CHECK(r.passed());
}

TEST_CASE("the first case that needs an entry is where a hunt without the entry ends") {
  HuntOptions o = hunt_of_updates(twice());
  o.keep_going = false;
  const HuntResult with = hunt(o);
  REQUIRE(with.needed.contains(0));
  o.profile = {};
  const HuntResult without = hunt(o);
  REQUIRE(without.findings.size() == 1);
  CHECK(without.findings[0].index == with.needed.at(0));

  o.profile = Profile({twice(), twice()});
  const HuntResult twofold = hunt(o);
  CHECK(twofold.needed.empty());
}

TEST_CASE("what an entry does not say is new") {
  void (*const kOthers[])(KnownDivergence&) = {
      [](KnownDivergence& e) { e.when.insert(Feature::images); },
      [](KnownDivergence& e) { e.unless.insert(Feature::images); },
      [](KnownDivergence& e) { e.laws = {"losses"}; },
      [](KnownDivergence& e) { e.at_most = 1e-6; },
      [](KnownDivergence& e) { e.inject = {FailureKind::forward_throws}; },
      [](KnownDivergence& e) { e.at = {"custom_norm"}; },
      [](KnownDivergence& e) {
        e.options = {{"mode", {"static_graph"}}};
      }};
  for (const auto& change : kOthers) {
    INFO("change " << &change - kOthers);
    KnownDivergence entry = twice();
    change(entry);
    const HuntResult r = hunt(hunt_of_updates(entry));
    CHECK_FALSE(r.passed());
    CHECK(r.violations() > 0);
    for (const Finding& f : r.findings) CHECK_FALSE(f.known);
  }
}

TEST_CASE("a profile may extend one of its folder, and no other") {
  const ScratchFolder folder;
  const auto write = [&](const std::string& name, const std::string& text) {
    std::ofstream(folder.path() / name) << text;
    return folder.path() / name;
  };
  const std::string rest = R"("known": [{"id": "b", "why": "c", "laws": ["losses"]}]})";
  write("a.json", R"({"format": 1, )" + rest);
  const auto b = write("b.json", R"({"format": 1, "extends": "a.json", )" + rest);
  CHECK(load_profile(b).entries().size() == 2);
  for (const std::string base : {"b.json", "c.json", "../a.json", "/a.json"}) {
    INFO(base);
    const auto file = write("b.json", R"({"format": 1, "extends": ")" + base + "\", " + rest);
    CHECK_THROWS_AS(load_profile(file), std::invalid_argument);
  }
}

TEST_CASE("an entry about custom layers explains the cases that have one of them") {
  KnownDivergence entry = twice();
  entry.when = {};
  entry.at = {"counter", "average"};
  const Profile profile({entry});
  const Violation violation{"reevaluation", "", "1", "2"};
  Case c;
  c.input = {2, 3};
  c.layers.resize(1);
  c.layers[0].kind = LayerKind::custom;
  c.layers[0].layer = declared("average: N C -> N C; state");
  CHECK(profile.explains(violation, c, {}) == 0);
  entry.at = {"aver*"};
  CHECK(Profile({entry}).explains(violation, c, {}) == 0);
  c.layers[0].layer = declared("other: N C -> N C; state");
  CHECK_FALSE(Profile({entry}).explains(violation, c, {}));
  CHECK_FALSE(profile.explains(violation, c, {}));
}

TEST_CASE("a case that breaks a known law and another one is a finding of the other one") {
  const Profile profile({twice()});
  const Case c;
  const FeatureSet features{Feature::stateful_layer};
  Verdicts verdicts{};
  verdicts.violations = {{"buffers-after-step", "", "", ""}, {"hooks", "", "", ""}};
  const Violation* first = profile.first_unexplained(verdicts, c, features);
  REQUIRE(first != nullptr);
  CHECK(first->law == "hooks");
  verdicts.violations.pop_back();
  CHECK(profile.first_unexplained(verdicts, c, features) == nullptr);
}

TEST_CASE("where several arrays differ, each must lie downstream of a known source") {
  const Case c = case_from_json(
      R"({"format": 1, "seed": 3, "input": [4, 3], "layers": [
          {"kind": "linear", "features": 3, "bias": false}, {"kind": "rrelu"},
          {"kind": "linear", "features": 3, "bias": false}, {"kind": "tanh"}],
          "plan": {"segments": [{"begin": 0, "end": 2, "variant": "non_reentrant"}]},
          "protocol": {"input_requires_grad": true}})");
  KnownDivergence entry = twice();
  entry.laws = {};
  entry.when = {};
  entry.at = {"rrelu"};
  entry.in = {"non_reentrant early_stop"};
  entry.wrong = {Wrong::gradient};
  KnownDivergence other = entry;
  other.at = {"tanh"};
  other.in = {};
  Violation violation{"parameter-gradients", "step 0, gradient of parameter 0", "1", "2"};
  CHECK(Profile({entry}).explains(violation, c, {}) == 0);
  violation.sites = {{0, 0, 0}};
  CHECK(Profile({entry}).explains(violation, c, {}) == 0);
  violation.sites = {{0, 0, 0}, {0, 0, 1}};
  CHECK_FALSE(Profile({entry}).explains(violation, c, {}));
  CHECK(Profile({entry, other}).explains(violation, c, {}) == 0);
}

TEST_CASE(
    "segments that nothing asks a gradient of are not recomputed, and no entry for another is to "
    "blame") {
  const Case c = case_from_json(
      R"({"format": 1, "seed": 3, "input": [4, 3], "layers": [{"kind": "linear", "features": 3}, {"kind": "relu"}],
          "plan": {"sequential": {"segments": 2, "variant": "non_reentrant"}}})");
  Violation never{"last-segment", "layers before 1", "recomputed", "never recomputed"};
  never.sites = {{-1, -1, 0}};
  KnownDivergence entry = twice();
  entry.laws = {};
  entry.when = {};
  entry.in = {"checkpointed"};
  entry.wrong = {Wrong::detached};
  CHECK(Profile({entry}).explains(never, c, {}) == 0);
  entry.wrong = {Wrong::recomputed};
  CHECK_FALSE(Profile({entry}).explains(never, c, {}));
}

TEST_CASE("an entry that names a promise explains it whatever the case has") {
  KnownDivergence entry = twice();
  entry.laws = {"promises", "losses"};
  entry.got = {"(none_argument)"};
  const auto explains = [&](const std::string& got) {
    return Profile({entry}).explains({"promises", "", "", got}, Case{}, {}).has_value();
  };
  CHECK(explains("N1 (none_argument): verdict"));
  CHECK_FALSE(explains("N1 (other_argument): verdict"));
}

TEST_CASE("an entry for small differences explains no larger ones, and none without numbers") {
  KnownDivergence entry = twice();
  entry.at_most = 1e-3;
  const Profile profile({entry});
  const FeatureSet features{Feature::stateful_layer};
  const auto explains = [&](std::optional<double> distance) {
    return profile.explains({"buffers-after-step", "", "", "", distance}, Case{}, features)
        .has_value();
  };
  CHECK(explains(0.0));
  CHECK(explains(1e-3));
  CHECK_FALSE(explains(2e-3));
  CHECK_FALSE(explains(std::numeric_limits<double>::infinity()));
  CHECK_FALSE(explains(std::nullopt));
}

TEST_CASE("how far off each array is counts, where an entry explains small differences of one") {
  KnownDivergence entry = twice();
  entry.at_most = 1e-3;
  const auto explains = [&](std::vector<double> distances) {
    Violation v{"buffers-after-step", "", "", "", 0.5};
    v.sites = {{0, 0, 0}, {0, 0, 1}};
    v.distances = std::move(distances);
    return Profile({entry}).explains(v, Case{}, {Feature::stateful_layer}).has_value();
  };
  CHECK(explains({0, 1e-3}));
  CHECK_FALSE(explains({0, 0.5}));
  CHECK_FALSE(explains({}));
}

TEST_CASE("an entry for one error explains no other") {
  KnownDivergence entry = twice();
  entry.laws = {"errors"};
  entry.got = {"not found", "not there"};
  const Profile profile({entry});
  const FeatureSet features{Feature::stateful_layer};
  const auto explains = [&](const char* got) {
    return profile.explains({"errors", "", "no error", got}, Case{}, features).has_value();
  };
  CHECK(explains("RuntimeError: a cast is not there"));
  CHECK_FALSE(explains("RuntimeError: out of luck"));
}

TEST_CASE("an entry may name values of options, of which a case has one of each") {
  const ScratchFolder folder;
  const auto file = folder.path() / "profile.json";
  std::ofstream(file) << with_entry(R"(, "options": {"mode": ["fast", "slow"], "ranks": ["4"]})");
  const Profile profile = load_profile(file);
  const auto explains = [&](const Options& options) {
    Case c;
    c.options = options;
    return profile.explains({"losses", "", "1", "2"}, c, {}).has_value();
  };
  CHECK(explains({{"mode", "slow"}, {"ranks", "4"}, {"promise", "nested"}}));
  CHECK_FALSE(explains({{"mode", "slow"}}));
  CHECK_FALSE(explains({{"mode", "other"}, {"ranks", "4"}}));
  CHECK_THAT(complaint(with_entry(R"(, "options": {"mode": "fast"})")),
             ContainsSubstring("known[0].options.mode: expected an array"));
  CHECK_THAT(complaint(with_entry(R"(, "options": ["mode"])")),
             ContainsSubstring("known[0].options: expected an object"));
}

TEST_CASE("an entry about versions explains nothing of a subject that has others") {
  const ScratchFolder folder;
  const auto file = folder.path() / "profile.json";
  std::ofstream(file) << with_entry(R"(, "versions": {"kernels": ["fast", "wide"]})");
  const Profile profile = load_profile(file);
  const auto explains = [&](const Versions& versions) {
    const Profile on = profile.on(versions);
    const bool explained = on.explains({"losses", "", "1", "2"}, Case{}, {}).has_value();
    CHECK(on.holds(0) == explained);
    return explained;
  };
  CHECK(explains({{"kernels", "very wide"}, {"other", "1"}}));
  CHECK_FALSE(explains({{"kernels", "slow"}}));
  CHECK_FALSE(explains({{"other", "wide"}}));
  CHECK_FALSE(explains({}));
  CHECK_THAT(complaint(with_entry(R"(, "versions": {"kernels": "fast"})")),
             ContainsSubstring("known[0].versions.kernels: expected an array"));
}

TEST_CASE("an entry whose segments drop nothing explains no more bytes than these") {
  KnownDivergence entry = twice();
  entry.laws = {"held-at-most", "errors"};
  entry.drops_nothing = true;
  const Profile profile({entry});
  const FeatureSet features{Feature::stateful_layer};
  const auto explains = [&](std::string_view law, std::optional<std::int64_t> beyond) {
    const Violation violation{
        .law = law, .place = "", .expected = "", .got = "", .beyond_undropped = beyond};
    return profile.explains(violation, Case{}, features).has_value();
  };
  CHECK(explains("held-at-most", 0));
  CHECK(explains("held-at-most", -8));
  CHECK_FALSE(explains("held-at-most", 1));
  CHECK(explains("errors", std::nullopt));
}

TEST_CASE("a profile that says something else than it may is refused with the place") {
  CHECK(complaint(with_entry("")) == "none");
  CHECK_THAT(complaint("{"), ContainsSubstring("profile.json"));
  CHECK_THAT(complaint(R"({"format": 2, "known": []})"), ContainsSubstring("format: expected 1"));
  CHECK_THAT(complaint(with_entry(R"(, "when": ["moon"])")),
             ContainsSubstring("known[0].when[0]: expected a feature, got \"moon\""));
  CHECK_THAT(complaint(with_entry(R"(, "inject": ["none"])")), ContainsSubstring("inject[0]"));
  CHECK_THAT(complaint(with_entry(R"(, "faults": ["C1"])")),
             ContainsSubstring("faults[0]: expected a fault that runs"));
  CHECK_THAT(complaint(with_entry(R"(, "mood": 1)")), ContainsSubstring("mood"));
  CHECK_THAT(complaint(with_entry(R"(, "example": {})")), ContainsSubstring("known[0].example"));
  CHECK_THAT(complaint(with_entry(R"(, "mood": 1, "at_most": 0.5)")), ContainsSubstring("mood"));
  CHECK_THAT(complaint(R"({"format": 1, "known": [{"id": "a", "laws": ["losses"]}]})"),
             ContainsSubstring("known[0].why"));
  CHECK_THAT(complaint(R"({"format": 1, "known": [{"id": "a", "why": "b"}]})"),
             ContainsSubstring("known[0].laws"));
  CHECK_THAT(complaint(R"({"format": 1, "known": [{"id": "a", "why": "b", "laws": ["x"]}]})"),
             ContainsSubstring("rematch laws"));
}

TEST_CASE(
    "profiles that come with the program can be read, with their examples, and their ids differ") {
  int read = 0;
  const std::filesystem::path folder = REMATCH_SOURCE_DIR "/properties/python/rematch/frameworks";
  for (const auto& file : std::filesystem::recursive_directory_iterator(folder)) {
    if (!file.path().filename().string().starts_with("profile")) continue;
    std::vector<std::string> ids;
    const Profile profile = load_profile(file.path());
    for (const KnownDivergence& entry : profile.entries()) {
      CHECK(std::find(ids.begin(), ids.end(), entry.id) == ids.end());
      ids.push_back(entry.id);
      if (!entry.example.empty()) CHECK_NOTHROW(case_from_json(entry.example));
    }
    CHECK_FALSE(ids.empty());
    ++read;
  }
  CHECK(read > 20);
}

}  // namespace rematch
