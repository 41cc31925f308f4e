// Times the stages of a hunt: each stage of a case by itself, over the first cases of a mix, and
// the work after a finding: shrinking it, recomputing a case.
#include <benchmark/benchmark.h>

#include <cstddef>

#include "properties/faults/fault.h"
#include "properties/forecast/forecast.h"
#include "properties/generate/mix.h"
#include "properties/generate/shrink.h"
#include "properties/hunt/gather.h"
#include "properties/hunt/replay.h"
#include "properties/laws/law.h"
#include "properties/subjects/engine_subject.h"

namespace rematch {
namespace {

constexpr std::uint64_t kCases = 256;

std::vector<Case> cases_of(Mix mix) {
  std::vector<Case> cases;
  for (std::uint64_t i = 0; i < kCases; ++i) cases.push_back(generate_case(mix, 1, i));
  return cases;
}

void count(benchmark::State& state) {
  state.SetItemsProcessed(static_cast<std::int64_t>(state.iterations()));
}

void generation(benchmark::State& state, Mix mix) {
  std::uint64_t i = 0;
  for (auto _ : state) benchmark::DoNotOptimize(generate_case(mix, 1, i++ % kCases));
  count(state);
}

void forecasting(benchmark::State& state, Mix mix) {
  const std::vector<Case> cases = cases_of(mix);
  std::size_t i = 0;
  for (auto _ : state) {
    const Case& c = cases[i++ % kCases];
    benchmark::DoNotOptimize(forecast(c, validate(c)));
  }
  count(state);
}

void one_run(benchmark::State& state, Mix mix, bool checkpointed) {
  const std::vector<Case> cases = cases_of(mix);
  EngineSubject engine;
  Record record;
  RunRequest request;
  request.checkpointed = checkpointed;
  std::size_t i = 0;
  for (auto _ : state) {
    const Case& c = cases[i++ % kCases];
    engine.run(c, validate(c), request, record);
  }
  count(state);
}

void judging(benchmark::State& state, Mix mix) {
  const std::vector<Case> cases = cases_of(mix);
  EngineSubject engine;
  Workspace workspace;
  std::size_t i = 0;
  for (auto _ : state) {
    if (!judge_case(cases[i++ % kCases], engine, workspace).kept())
      state.SkipWithError("a law was violated");
  }
  count(state);
}

void recomputing(benchmark::State& state, Mix mix) {
  const std::vector<Case> cases = cases_of(mix);
  EngineSubject engine;
  std::size_t i = 0;
  for (auto _ : state) benchmark::DoNotOptimize(replay(cases[i++ % kCases], engine));
  count(state);
}

/// Findings in an engine that does not rewind the random state, each down to its smallest. The
/// layers that are left say how well it goes, the cases tried how much was done for it.
void shrinking(benchmark::State& state, Mix mix) {
  EngineSubject broken(find_fault("R1")->make);
  Workspace workspace;
  std::vector<Case> findings;
  for (const Case& c : cases_of(mix)) {
    if (!judge_case(c, broken, workspace).kept()) findings.push_back(c);
    if (findings.size() == 8) break;
  }
  if (findings.empty()) {
    state.SkipWithError("the fault was not found");
    return;
  }
  // Rounds of all findings are alike, so that the counters do not depend on how long it runs.
  std::int64_t tried = 0;
  std::size_t layers = 0;
  const auto fails = [&](const Case& c) {
    ++tried;
    return !judge_case(c, broken, workspace).kept();
  };
  for (auto _ : state) {
    tried = 0;
    layers = 0;
    // No limit in time: the steps are the same on every machine.
    for (const Case& c : findings) layers += shrink(c, fails, {5000, 1e9}).layers.size();
  }
  state.counters["findings"] = static_cast<double>(findings.size());
  state.counters["cases_tried"] = static_cast<double>(tried);
  state.counters["layers_left"] = static_cast<double>(layers);
}

#define REMATCH_STAGES(mix)                                       \
  BENCHMARK_CAPTURE(generation, mix, Mix::mix);                   \
  BENCHMARK_CAPTURE(forecasting, mix, Mix::mix);                  \
  BENCHMARK_CAPTURE(one_run, mix##_plain, Mix::mix, false);       \
  BENCHMARK_CAPTURE(one_run, mix##_checkpointed, Mix::mix, true); \
  BENCHMARK_CAPTURE(judging, mix, Mix::mix);                      \
  BENCHMARK_CAPTURE(recomputing, mix, Mix::mix);                  \
  BENCHMARK_CAPTURE(shrinking, mix, Mix::mix)->Unit(benchmark::kMillisecond)

REMATCH_STAGES(standard);
REMATCH_STAGES(wide);

}  // namespace
}  // namespace rematch
