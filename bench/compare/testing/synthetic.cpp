#include "bench/compare/testing/synthetic.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace rematch::compare {

NoisyMachine::NoisyMachine(const NoiseModel& model, std::uint64_t seed)
    : model_(model), bits_(seed), state_(0) {
  state_ = normal();
}

double NoisyMachine::uniform() { return static_cast<double>(bits_() >> 11U) * 0x1p-53; }

double NoisyMachine::normal() {
  const double radius = std::sqrt(-2 * std::log(1 - uniform()));
  return radius * std::cos(2 * std::numbers::pi * uniform());
}

double NoisyMachine::student3() {
  double squares = 0;
  for (int i = 0; i < 3; ++i) {
    const double z = normal();
    squares += z * z;
  }
  return normal() / std::sqrt(squares / 3);
}

std::vector<double> NoisyMachine::next_process(int repetitions) {
  const double rho = model_.correlation;
  state_ = rho * state_ + std::sqrt(1 - rho * rho) * normal();
  if (in_burst_) {
    in_burst_ = uniform() >= model_.burst_ends;
  } else if (uniform() < model_.burst_begins) {
    in_burst_ = true;
    burst_ = -model_.burst * std::log(1 - uniform());
  }
  const double process = model_.state * state_ + model_.process * normal();
  std::vector<double> factors;
  for (int i = 0; i < repetitions; ++i) {
    const double wobble = std::clamp(model_.repetition * student3(), -0.5, 0.5);
    factors.push_back(std::exp(process + wobble) * (in_burst_ ? 1 + burst_ : 1));
  }
  return factors;
}

Comparison run_campaign(const Campaign& campaign, Options options, NoisyMachine& machine) {
  options.looks = static_cast<int>(campaign.pairs_per_look.size());
  std::vector<ResultFile> base;
  std::vector<ResultFile> head;
  std::vector<std::string> wanted;
  for (int i = 0; i < campaign.benchmarks; ++i) wanted.push_back(fmt::format("model{}/plan", i));
  const std::vector<std::string> all = wanted;
  int pairs = 0;
  for (const int until : campaign.pairs_per_look) {
    for (; pairs < until; ++pairs) {
      ResultFile a;
      ResultFile b;
      a.fingerprint["rematch_cpu"] = b.fingerprint["rematch_cpu"] = "synthetic";
      a.has_fingerprint = b.has_fingerprint = true;
      for (const std::string& name : wanted) {
        const auto at = std::find(all.begin(), all.end(), name) - all.begin();
        const double factor = at < campaign.changed ? campaign.factor : 1;
        const auto run = [&](ResultFile& file, double scale) {
          BenchmarkRun r;
          r.name = name;
          for (const double f : machine.next_process(campaign.repetitions)) {
            r.real_ns.push_back(1e7 * scale * f);
          }
          r.cpu_ns = r.real_ns;
          file.benchmarks.push_back(r);
        };
        const bool base_first = !campaign.random_order || machine.coin();
        if (base_first) run(a, 1);
        run(b, factor);
        if (!base_first) run(a, 1);
      }
      base.push_back(a);
      head.push_back(b);
    }
    Comparison c = compare(pair_sides(base, head), options);
    wanted.clear();
    for (const BenchmarkResult& b : c.benchmarks) {
      if (b.time.verdict == TimeVerdict::unsure) wanted.push_back(b.name);
    }
    if (wanted.empty() || until == campaign.pairs_per_look.back()) return c;
  }
  return compare(pair_sides(base, head), options);
}

std::string to_text(const FakeFile& file) {
  std::string context =
      R"(    "date": "2026-01-02T03:04:05+00:00",
    "host_name": "host",
    "executable": "rematch-bench",
    "num_cpus": 2,
    "mhz_per_cpu": 2600,
    "caches": [],
    "load_avg": [0.5,0.25,0.125],
)";
  if (file.has_fingerprint) {
    context += fmt::format(
        "    \"rematch_format\": \"{}\",\n    \"rematch_commit\": \"{}\",\n"
        "    \"rematch_dirty\": \"0\",\n    \"rematch_cpu\": \"{}\",\n"
        "    \"rematch_threads\": \"1\",\n",
        file.format, file.commit, file.cpu);
  }
  context += file.extra_context + "    \"library_build_type\": \"release\"\n";
  std::string entries;
  for (const FakeBenchmark& b : file.benchmarks) {
    for (std::size_t i = 0; i < b.ms.size(); ++i) {
      std::string counters;
      for (const auto& [name, value] : b.counters) {
        counters += fmt::format(",\n      \"{}\": {}", name, value);
      }
      entries += fmt::format(
          "{}    {{\n      \"name\": \"{}/real_time\",\n      \"run_name\": \"{}/real_time\",\n"
          "      \"run_type\": \"iteration\",\n      \"repetitions\": {},\n"
          "      \"repetition_index\": {},\n      \"threads\": 1,\n      \"iterations\": 10,\n"
          "      \"real_time\": {:.16e},\n      \"cpu_time\": {:.16e},\n"
          "      \"time_unit\": \"ms\"{}\n    }}",
          entries.empty() ? "" : ",\n", b.name, b.name, b.ms.size(), i, b.ms[i],
          b.ms[i] * file.cpu_share, counters);
    }
  }
  return "{\n  \"context\": {\n" + context + "  },\n  \"benchmarks\": [\n" + entries + "\n  ]\n}\n";
}

}  // namespace rematch::compare
