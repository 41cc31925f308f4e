// Counts of a step, against what must hold of them.
#include "bench/steps/step.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <numeric>
#include <string>

namespace rematch::bench {
namespace {

const NamedModel& tiny() { return models().back(); }

Counted count(std::string_view plan, Numbers numbers = Numbers::float32) {
  for (const Plan& p : plans()) {
    if (p.name == plan) return Step({tiny(), p, tiny().batch, numbers, Device::cpu}).count();
  }
  FAIL("no plan is named " << plan);
  return {};
}

std::int64_t value_of(const Counted& counted, std::string_view name) {
  for (const auto& [counter, value] : counted.counts) {
    if (counter == name) return value;
  }
  return -1;
}

}  // namespace

TEST_CASE("the first step counts as every later one, and its peak is made of its parts") {
  for (const StepSpec& spec : usual_steps(tiny(), Device::cpu)) {
    Step step(spec);
    const Counted first = step.count();
    step.run();
    const Counted later = step.count();
    INFO(spec.name());
    CHECK(first.counts == later.counts);
    CHECK(first.peak.by_tag == later.peak.by_tag);
    CHECK(first.peak.place == later.peak.place);
    const auto& parts = first.peak.by_tag;
    CHECK(std::accumulate(parts.begin(), parts.end(), std::int64_t{0}) == first.peak.bytes);
    CHECK(first.peak.bytes == value_of(first, "peak_bytes"));
  }
}

TEST_CASE("every plan runs each layer once, and those again that it recomputes") {
  constexpr std::int64_t kLayers = 8;
  const std::int64_t plain_flops = value_of(count("plain"), "flops");
  for (const Plan& plan : plans()) {
    const Counted counted = count(plan.name);
    INFO(plan.name);
    const std::int64_t again = value_of(counted, "recomputed_layers");
    CHECK(value_of(counted, "layer_runs") == kLayers + again);
    CHECK(value_of(counted, "flops") == plain_flops + value_of(counted, "recomputed_flops"));
    CHECK((again == 0) == (plan.cut == Plan::Cut::plain));
  }
  // Excludes the last segment, which is stored; each layer is in two levels.
  CHECK(value_of(count("k2"), "recomputed_layers") == 4);
  CHECK(value_of(count("every"), "recomputed_layers") == 7);
  CHECK(value_of(count("sqrt-last"), "recomputed_layers") == 8);
  CHECK(value_of(count("nested-reentrant"), "recomputed_layers") == 16);
}

TEST_CASE("what is offloaded is what would have been saved") {
  CHECK(value_of(count("plain"), "offloaded_bytes") == -1);
  const Counted offload = count("offload");
  CHECK(value_of(offload, "offloaded_bytes") == value_of(count("plain"), "saved_bytes"));
  CHECK(value_of(offload, "saved_bytes") == 0);
  CHECK(value_of(count("sqrt-offload"), "offloaded_bytes") ==
        value_of(count("sqrt-last"), "saved_bytes"));
}

TEST_CASE("other numbers take other bytes for the same layers") {
  const Counted single = count("plain");
  const Counted twice = count("plain", Numbers::float64);
  CHECK(value_of(twice, "peak_bytes") == 2 * value_of(single, "peak_bytes"));
  CHECK(value_of(twice, "flops") == value_of(single, "flops"));
  CHECK(value_of(count("plain", Numbers::autocast), "flops") == value_of(single, "flops"));
}

TEST_CASE("a benchmark's name says all that it is") {
  const Plan& plain = plans().front();
  CHECK(StepSpec{tiny(), plain, 4, Numbers::float32, Device::cpu}.name() ==
        "tiny/plain/float32/cpu");
  CHECK(StepSpec{tiny(), plain, 16, Numbers::autocast, Device::cuda}.name() ==
        "tiny-b16/plain/bfloat16-autocast/cuda");
}

}  // namespace rematch::bench
