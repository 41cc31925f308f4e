// Whether the verdicts keep what they promise, on a synthetic machine that others use as well.
#include <catch2/catch_test_macros.hpp>

#include "bench/compare/testing/synthetic.h"
#include "bench/compare/words.h"

namespace rematch::compare {
namespace {

struct Tally {
  int runs = 0;
  int alarms = 0;  ///< Runs with a SLOWER or FASTER among the unchanged benchmarks.
  int changed = 0;
  int found = 0;   ///< Changed benchmarks that are SLOWER.
  int missed = 0;  ///< Changed benchmarks that are SAME.
  int unchanged = 0;
  int same = 0;
};

Tally tally(int runs, const Campaign& campaign, const Options& options, const NoiseModel& noise,
            std::uint64_t seed) {
  Tally t;
  for (int i = 0; i < runs; ++i) {
    NoisyMachine machine(noise, seed + static_cast<std::uint64_t>(i));
    const Comparison c = run_campaign(campaign, options, machine);
    bool alarm = false;
    for (std::size_t k = 0; k < c.benchmarks.size(); ++k) {
      const TimeVerdict verdict = c.benchmarks[k].time.verdict;
      if (static_cast<int>(k) < campaign.changed) {
        ++t.changed;
        t.found += verdict == TimeVerdict::slower ? 1 : 0;
        t.missed += verdict == TimeVerdict::same ? 1 : 0;
      } else {
        ++t.unchanged;
        t.same += verdict == TimeVerdict::same ? 1 : 0;
        alarm = alarm || verdict == TimeVerdict::slower || verdict == TimeVerdict::faster;
      }
    }
    t.alarms += alarm ? 1 : 0;
    ++t.runs;
  }
  return t;
}

NoiseModel rougher(double factor) {
  NoiseModel noise;
  noise.state *= factor;
  noise.process *= factor;
  noise.repetition *= factor;
  noise.burst *= factor;
  return noise;
}

}  // namespace

TEST_CASE("a program compared with itself raises at most one false alarm in 100 whole runs") {
  for (const double roughness : {0.3, 1.0, 3.0}) {
    const Tally t = tally(300, Campaign{}, Options{}, rougher(roughness), 1);
    CHECK(t.alarms * 100 <= t.runs);
  }
  // The usual noise leaves hardly anything unsure.
  const Tally t = tally(100, Campaign{}, Options{}, NoiseModel{}, 10000);
  CHECK(t.same * 100 >= t.unchanged * 98);
}

TEST_CASE("the correction alone, without a least effect, keeps the rate of false alarms") {
  const Options no_band{.min_effect = 0};
  const Tally one_look =
      tally(1000, Campaign{.pairs_per_look = {20}}, no_band, NoiseModel{}, 20000);
  const Tally three_looks =
      tally(1000, Campaign{.pairs_per_look = {18, 24, 30}}, no_band, NoiseModel{}, 30000);
  // 1 % of 1000, and three standard deviations of a binomial count.
  CHECK(one_look.alarms <= 10 + 9);
  CHECK(three_looks.alarms <= 10 + 9);
  // Not so careful that nothing could ever be found.
  CHECK(one_look.alarms > 0);
}

TEST_CASE("a program that is 5 % slower is found at least 95 times in 100") {
  const Tally t =
      tally(200, Campaign{.factor = 1.05, .changed = 3}, Options{}, NoiseModel{}, 40000);
  CHECK(t.found * 100 >= t.changed * 95);
  CHECK(t.missed == 0);
  CHECK(t.alarms * 100 <= t.runs);
}

TEST_CASE("a change that is just as large as the least effect is rarely called the same") {
  const Tally t =
      tally(100, Campaign{.factor = 1.02, .changed = 30}, Options{}, NoiseModel{}, 50000);
  CHECK(t.missed * 100 <= t.changed * 3);
  CHECK(t.found * 100 <= t.changed);
}

TEST_CASE("looking again never takes back a verdict that was certain") {
  NoisyMachine machine(NoiseModel{}, 60000);
  const Comparison c = run_campaign(Campaign{.factor = 1.08, .changed = 15}, Options{}, machine);
  int certain = 0;
  for (int i = 0; i < 15; ++i) {
    const TimeResult& t = c.benchmarks[static_cast<std::size_t>(i)].time;
    certain += t.pairs == 18 && t.verdict == TimeVerdict::slower ? 1 : 0;
    // Those with 18 pairs were certain at the first look, and not measured again.
    if (t.pairs == 18) CHECK(t.verdict != TimeVerdict::unsure);
  }
  CHECK(certain > 0);
}

}  // namespace rematch::compare
