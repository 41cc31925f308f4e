// Where the time of a hunt goes: each stage of a case by itself, over the first cases of a mix.
#include <benchmark/benchmark.h>

#include "properties/forecast/forecast.h"
#include "properties/generate/mix.h"
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
  Bench bench;
  std::size_t i = 0;
  for (auto _ : state) {
    if (!judge(cases[i++ % kCases], engine, bench).held()) state.SkipWithError("a law was broken");
  }
  count(state);
}

#define REMATCH_STAGES(mix)                                       \
  BENCHMARK_CAPTURE(generation, mix, Mix::mix);                   \
  BENCHMARK_CAPTURE(forecasting, mix, Mix::mix);                  \
  BENCHMARK_CAPTURE(one_run, mix##_plain, Mix::mix, false);       \
  BENCHMARK_CAPTURE(one_run, mix##_checkpointed, Mix::mix, true); \
  BENCHMARK_CAPTURE(judging, mix, Mix::mix)

REMATCH_STAGES(standard);
REMATCH_STAGES(wide);

}  // namespace
}  // namespace rematch
