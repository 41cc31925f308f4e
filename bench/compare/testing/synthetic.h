#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "bench/compare/comparison.h"

namespace rematch::compare {

/// How a machine that others use as well disturbs the times of processes that run one after the
/// other. Shares of the time; the defaults are rougher than a quiet machine and milder than two
/// cores under a load of five.
struct NoiseModel {
  /// The state of the machine (clock, neighbours): autocorrelated, an AR(1) process.
  double state = 0.03;
  double correlation = 0.9;
  /// What a process as a whole has by chance: where its memory lies, how it is scheduled.
  double process = 0.01;
  /// Within a process, from repetition to repetition: Student's t with 3 degrees of freedom.
  double repetition = 0.004;
  /// Something else wants the core for a while: begins and ends with these probabilities per
  /// process, and costs on average this share more.
  double burst_begins = 0.03;
  double burst_ends = 0.3;
  double burst = 0.25;
};

/// A reproducible source of disturbances; the same seed gives the same on every machine, up to the
/// last digits of libm.
class NoisyMachine {
 public:
  NoisyMachine(const NoiseModel& model, std::uint64_t seed);
  /// The factors by which the repetitions of the next process are slower than they might be.
  std::vector<double> next_process(int repetitions);
  /// In [0, 1).
  double uniform();
  double normal();
  bool coin() { return uniform() < 0.5; }

 private:
  double student3();

  NoiseModel model_;
  std::mt19937_64 bits_;
  double state_;
  bool in_burst_ = false;
  double burst_ = 0;
};

/// What ci/compare does, on a machine that is not there.
struct Campaign {
  int benchmarks = 30;
  int repetitions = 3;
  std::vector<int> pairs_per_look{18, 36, 72};
  /// The new side's true time over the base's, for the first `changed` benchmarks.
  double factor = 1;
  int changed = 0;
  /// False: A before B in each pair. True: a coin decides.
  bool random_order = true;
};

/// Measures, judges, measures those that are unsure again. `options.looks` is set to the looks of
/// the campaign.
Comparison run_campaign(const Campaign& campaign, Options options, NoisyMachine& machine);

/// A result file as rematch-bench writes it: `benchmarks` entries with one repetition per time.
struct FakeBenchmark {
  std::string name;
  std::vector<double> ms;
  /// Fields of each entry, with values as they stand in JSON.
  std::vector<std::pair<std::string, std::string>> counters;
};
struct FakeFile {
  std::string commit = "1111111111111111111111111111111111111111";
  std::string cpu = "Model A";
  std::string format = "1";
  bool has_fingerprint = true;
  double cpu_share = 0.75;    ///< Of the real time.
  std::string extra_context;  ///< More fields, with a comma behind each.
  std::vector<FakeBenchmark> benchmarks;
};
std::string to_text(const FakeFile& file);

}  // namespace rematch::compare
