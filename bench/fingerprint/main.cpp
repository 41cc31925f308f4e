// main() of the small programs: Google Benchmark's, with the fingerprint in the context of results.
#include <benchmark/benchmark.h>

#include "bench/fingerprint/fingerprint.h"

int main(int argc, char** argv) {
  for (const auto& [name, value] : rematch::bench::fingerprint(rematch::Device::cpu, 1)) {
    benchmark::AddCustomContext(name, value);
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
