// Bytes and counts of every training step that rematch-bench runs, on every machine.
#include "bench/steps/step.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <string>

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

}  // namespace

TEST_CASE("steps of every model take the bytes and counts that were approved", "[approved]") {
  const auto& models = bench::models();
  REQUIRE(models.size() == 6);
  const bench::NamedModel& model = models[GENERATE(range(std::size_t{0}, std::size_t{6}))];
  // Minutes under a sanitizer, which has no part in what is counted.
  if (kIsSlow && (model.name == "cifar" || model.name == "transformer")) return;
  const std::string difference =
      difference_from_approved("steps/" + std::string(model.name), steps_of(model));
  if (!difference.empty()) FAIL(difference);
}

}  // namespace rematch::golden
