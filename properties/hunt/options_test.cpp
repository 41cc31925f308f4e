// Options of a subject: what decides a run stands in the case, and findings differ by it.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <functional>
#include <set>

#include "properties/case/describe.h"
#include "properties/case/json.h"
#include "properties/generate/mix.h"
#include "properties/hunt/gather.h"
#include "properties/hunt/hunt.h"
#include "properties/subjects/testing/changed.h"
#include "properties/testing/outcome.h"

namespace rematch {
namespace {

using Spoil = std::function<void(const Case& c, Record& record)>;

/// The engine with an option, and with what `spoil` does to the records of its checkpointed runs.
std::unique_ptr<Subject> with_option(const OptionSpec& option, const Spoil& spoil,
                                     std::uint64_t per_shape) {
  Declaration declared{.name = "optional"};
  declared.observes.insert(Observable::promises);
  declared.scope.options = {option};
  declared.scope.cases_per_shape = per_shape;
  return std::make_unique<testing::Changed>(
      declared, [=](const Case& c, const RunRequest& request, Record& record) {
        if (request.checkpointed && !record.error) spoil(c, record);
      });
}

const OptionSpec kTried{"promise", {"none", "early_stop", "nested", "whole"}, 0.5};
const OptionSpec kMode{"mode", {"default", "find_unused", "static_graph"}, 0.5};

/// A model that no shrinking changes, so that findings differ by options or not at all.
const Case& smallest_model() {
  static const Case c = case_from_json(R"({"format": 1, "input": [1, 1],
      "layers": [{"kind": "linear", "features": 1}]})");
  return c;
}

/// Tries the promise of the case. All but "whole" are broken.
void keep_promise(const Case& c, Record& record) {
  const auto promise = c.options.find("promise");
  if (promise == c.options.end()) return;
  const std::string& name = promise->second;
  record.promises.push_back({name, name == "whole" ? "" : "Not so (" + name + "): broken"});
}

HuntResult hunt_with(const OptionSpec& option, const Spoil& spoil, const Profile& profile,
                     std::uint64_t per_shape = 1) {
  HuntOptions options;
  options.seed = 12;
  options.cases = 100;
  options.jobs = 2;
  options.keep_going = true;
  options.shrunk_per_law = 8;
  options.profile = profile;
  Scope scope;
  scope.options = {option};
  scope.cases_per_shape = per_shape;
  options.generate = [=](std::uint64_t index) {
    const Case drawn = generate_case(Mix::wide, 12, index, scope);
    Case c = smallest_model();
    c.seed = drawn.seed;
    c.options = drawn.options;
    return c;
  };
  options.make_subject = [=] { return with_option(option, spoil, per_shape); };
  return hunt(options);
}

/// The options of the smallest cases, of findings that violate `law` alone.
std::set<Options> options_of(const std::vector<Finding>& findings, std::string_view law) {
  std::set<Options> options;
  for (const Finding& f : findings) {
    INFO(describe(f.smallest));
    CHECK(f.violation.law == law);
    CHECK(options.insert(f.smallest.options).second);
  }
  return options;
}

}  // namespace

TEST_CASE("two new broken promises are two findings") {
  for (const std::uint64_t per_shape : {1, 20}) {
    const HuntResult result = hunt_with(kTried, keep_promise, {}, per_shape);
    CHECK(options_of(result.findings, "promises") ==
          std::set<Options>{{{"promise", "early_stop"}}, {{"promise", "nested"}}});
    const VerdictCounts& of_law = result.verdicts[index_of(*find_law("promises"))];
    CHECK(count_of(of_law, Verdict::kept) > 0);
    CHECK(count_of(of_law, Verdict::not_applicable) > 30);
  }
}

TEST_CASE("a failure under two values of an option is two findings, under all values it is one") {
  const auto fail = [](Record& record) { record.error = RecordedError{"error", "not supported"}; };
  const auto under_two = [&](const Case& c, Record& record) {
    if (!c.options.empty()) fail(record);
  };
  CHECK(options_of(hunt_with(kMode, under_two, {}).findings, "errors") ==
        std::set<Options>{{{"mode", "find_unused"}}, {{"mode", "static_graph"}}});
  const auto under_all = [&](const Case&, Record& record) { fail(record); };
  CHECK(options_of(hunt_with(kMode, under_all, {}).findings, "errors") == std::set<Options>{{}});
}

TEST_CASE("a wrong gradient is found in a case whose promise is known to be broken") {
  KnownDivergence known;
  known.id = "early-stop";
  known.laws = {"promises"};
  known.options = {{"promise", {"early_stop", "nested"}}};
  const Profile profile({known});
  const HuntResult sound = hunt_with(kTried, keep_promise, profile);
  CHECK(sound.findings.empty());
  CHECK(sound.known.at(0) > 20);

  const auto negate_gradient = [](const Case& c, Record& record) {
    keep_promise(c, record);
    if (record.promises.empty()) return;
    for (const Observation& o : record.observations) {
      if (o.quantity != Quantity::parameter_gradient || !o.present) continue;
      for (std::size_t end = size_of(o.dtype); end <= o.bytes; end += size_of(o.dtype)) {
        record.data[o.offset + end - 1] ^= std::byte{0x80};
      }
    }
  };
  const HuntResult wrong = hunt_with(kTried, negate_gradient, profile);
  REQUIRE_FALSE(wrong.findings.empty());
  const std::set<Options> options = options_of(wrong.findings, "parameter-gradients");
  CHECK(options.contains({{"promise", "early_stop"}}));
}

TEST_CASE("a case with an option that the subject does not have is refused") {
  const auto subject = with_option(
      kMode, [](const Case&, Record&) {}, 1);
  Workspace workspace;
  Case c = generate_case(Mix::wide, 1, 0);
  const auto refusal = [&](const Options& options) {
    c.options = options;
    return testing::message_of([&] { (void)judge_case(c, *subject, workspace); });
  };
  CHECK(refusal({{"mode", "static_graph"}}) == "none");
  CHECK(refusal({{"mode", "default"}}) == "none");
  CHECK(refusal({{"mode", "fast"}}) ==
        "[case] options.mode: expected one of default, find_unused, static_graph, got fast");
  CHECK(refusal({{"colour", "red"}}) == "[case] options: expected one of mode, got colour");
  EngineSubject engine;
  CHECK_THROWS_AS(judge_case(c, engine, workspace), std::invalid_argument);
}

}  // namespace rematch
