// The proof that a hunt can fail: wrong engines, each caught and shrunk.
#include <catch2/catch_test_macros.hpp>
#include <set>

#include "properties/faults/fault.h"
#include "properties/hunt/gather.h"
#include "properties/hunt/hunt.h"
#include "properties/subjects/engine_subject.h"

namespace rematch {

TEST_CASE("every fault is caught, and its shrunk case breaks the same law by itself") {
  for (const Fault& fault : faults()) {
    if (!fault.runs()) continue;
    INFO(fault.id);
    HuntOptions options;
    options.cases = 5000;
    options.make_subject = [&] { return std::make_unique<EngineSubject>(fault.make); };
    const HuntResult result = hunt(options);
    REQUIRE(result.findings.size() == 1);
    const Case& smallest = result.findings[0].smallest;
    CHECK(smallest.layers.size() <= 4);
    EngineSubject wrong(fault.make);
    EngineSubject right;
    Workspace workspace;
    const Verdicts again = judge_case(smallest, wrong, workspace);
    REQUIRE_FALSE(again.kept());
    CHECK(again.first()->law == result.findings[0].violation.law);
    CHECK(judge_case(smallest, right, workspace).kept());
  }
}

TEST_CASE("faults that no gradient shows are caught by laws about counts, bytes and state") {
  // In the standard mix, where one forward has one backward, no run fails of what follows.
  const auto is_caught = [](std::string_view id, std::string_view law, Mix mix = Mix::standard) {
    HuntOptions options;
    options.mix = mix;
    options.cases = 5000;
    options.laws = laws_named({law});
    const Fault* fault = find_fault(id);
    REQUIRE(fault != nullptr);
    options.make_subject = [fault] { return std::make_unique<EngineSubject>(fault->make); };
    const HuntResult result = hunt(options);
    return result.findings.size() == 1 && result.findings[0].violation.law == law;
  };
  CHECK(is_caught("P3", "executions"));
  CHECK(is_caught("P9", "requires-grad-map"));
  CHECK(is_caught("L1", "bytes-after-backward", Mix::wide));
  CHECK(is_caught("R2", "rng-after-backward"));
}

TEST_CASE("every fault has an id and a sentence of its own") {
  std::set<std::string_view> ids;
  for (const Fault& fault : faults()) {
    CHECK(ids.insert(fault.id).second);
    CHECK(fault.statement.ends_with('.'));
    // It runs, or says why not.
    CHECK((fault.make != nullptr) + !fault.equivalent.empty() + !fault.needs.empty() == 1);
    CHECK(find_fault(fault.id) == &fault);
  }
  CHECK(find_fault("R0") == nullptr);
}

}  // namespace rematch
