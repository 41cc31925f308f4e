// Bytes and counts of every training step that rematch-bench runs, on every machine.
#include "bench/steps/step.h"

#include <catch2/catch_test_macros.hpp>
#include <string>
#include <string_view>

#include "golden/approvals/testing/approved.h"

namespace rematch::golden {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kIsSlow = true;
#else
constexpr bool kIsSlow = false;
#endif

Json peak_json(const bench::Peak& peak) {
  Json bytes = Json::object();
  for (int i = 0; i < kTagCount; ++i) {
    const std::int64_t value = peak.by_tag[static_cast<std::size_t>(i)];
    if (value != 0) bytes[std::string(to_string(static_cast<Tag>(i)))] = value;
  }
  return {{"bytes", std::move(bytes)},
          {"allocated", peak.allocated},
          {"for", std::string(to_string(peak.allocated_for))},
          {"place", peak.place}};
}

Json steps_of(const bench::NamedModel& model) {
  Json entries = Json::object();
  for (const bench::StepSpec& spec : bench::usual_steps(model, Device::cpu)) {
    bench::Step step(spec);
    const bench::Counted counted = step.count();
    Json entry = Json::object();
    for (const auto& [name, value] : counted.counts) entry[std::string(name)] = value;
    entry["peak"] = peak_json(counted.peak);
    entries[spec.name()] = std::move(entry);
  }
  return entries;
}

void check(std::string_view name) {
  if (kIsSlow && (name == "cifar" || name == "transformer")) {
    SKIP("minutes under a sanitizer, which has no part in what is counted");
  }
  for (const bench::NamedModel& model : bench::models()) {
    if (model.name != name) continue;
    const std::string difference =
        difference_from_approved("steps/" + std::string(name), steps_of(model));
    if (!difference.empty()) FAIL(difference);
    return;
  }
  FAIL("no model is named " << name);
}

}  // namespace

TEST_CASE("every model has approved steps") { CHECK(bench::models().size() == 6); }
TEST_CASE("steps of mymodel are as approved", "[approved]") { check("mymodel"); }
TEST_CASE("steps of cifar are as approved", "[approved]") { check("cifar"); }
TEST_CASE("steps of deep64 are as approved", "[approved]") { check("deep64"); }
TEST_CASE("steps of residual32 are as approved", "[approved]") { check("residual32"); }
TEST_CASE("steps of transformer are as approved", "[approved]") { check("transformer"); }
TEST_CASE("steps of tiny are as approved", "[approved]") { check("tiny"); }

}  // namespace rematch::golden
