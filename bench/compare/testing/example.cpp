#include "bench/compare/testing/example.h"
#include "properties/testing/shell.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

namespace rematch::compare {
namespace {

using testing::text_of;

/// In [-1, 1), from integers alone (the finaliser of splitmix64).
double wobble(int i) {
  auto x = static_cast<std::uint64_t>(i) * 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
  return static_cast<double>((x >> 20U) % 2001) / 1000 - 1;
}

struct Example {
  const char* name;
  double ms;
  double factor;
  double noise;
};

constexpr Example kExamples[] = {{"cifar/sqrt/float32/cpu", 12, 1.061, 0.01},
                                 {"cifar/plain/float32/cpu", 9, 1, 0.01},
                                 {"deep64/every_layer/float32/cpu", 71, 0.93, 0.01},
                                 {"deep64/plain/float32/cpu", 55, 1.021, 0.01},
                                 {"mlp/offload/float32/cpu", 0.8, 1.04, 0.12},
                                 {"mlp/a<b>&|`_name/float64/cpu", 0.5, 1.002, 0.01}};

}  // namespace

std::vector<FakeFile> example_files(bool is_head, int pairs) {
  std::vector<FakeFile> files;
  for (int i = 0; i < pairs; ++i) {
    FakeFile file;
    if (is_head) file.commit = "2222222222222222222222222222222222222222";
    int k = 0;
    for (const Example& e : kExamples) {
      ++k;
      FakeBenchmark b;
      b.name = e.name;
      for (int r = 0; r < 3; ++r) {
        const double noise =
            1 + e.noise * wobble(i * 97 + k * 1009 + r * 13 + (is_head ? 5003 : 0));
        b.ms.push_back(e.ms * (is_head ? e.factor : 1) * noise);
      }
      const bool rises = is_head && k == 1;
      const bool falls = is_head && k == 3;
      b.counters = {{"peak_bytes", rises   ? "7.8359296e+07"
                                   : falls ? "4.0e+07"
                                           : "7.6e+07"},
                    {"saved_bytes", is_head && k == 2 ? "2359300" : "2359296"},
                    {"arena_pages", "17.25"}};
      if (k == 4 && is_head) b.counters.emplace_back("flops", "123456");
      if (k == 5 && !is_head) b.counters.emplace_back("allocations", "12");
      file.benchmarks.push_back(b);
    }
    file.benchmarks.push_back(
        {is_head ? "new/plain/float32/cpu" : "old/plain/float32/cpu", {3}, {}});
    files.push_back(file);
  }
  return files;
}

Comparison example_comparison(const Options& options) {
  const auto read = [](bool is_head) {
    std::vector<ResultFile> files;
    for (const FakeFile& file : example_files(is_head)) {
      files.push_back(result_from_text(to_text(file), is_head ? "new.json" : "base.json"));
    }
    return files;
  };
  return compare(pair_sides(read(false), read(true)), options);
}

TimelinePairs example_timelines() {
  const auto step = [](std::int64_t top) {
    Timeline t;
    t.phases = {{0, "forward"}, {6, "backward"}, {14, "step"}};
    for (int i = 0; i < 16; ++i) {
      t.live.push_back(i < 6 ? 1000000 + 500000 * i : i == 8 ? top : 5000000 - 280000 * i);
      t.peak = std::max(t.peak, t.live.back());
    }
    return t;
  };
  return {{"cifar/sqrt/float32/cpu", step(5000000), step(6200000)},
          {"old/plain/float32/cpu", step(4000000), std::nullopt}};
}

std::vector<HistoryEntry> example_history() {
  std::vector<HistoryEntry> entries;
  for (int i = 0; i < 40; ++i) {
    HistoryEntry e;
    e.commit = fmt::format("{:x}{:032x}", 0xabc00000 + i * 7919, i);
    e.date = fmt::format("2026-01-{:02}T00:00:00+00:00", 1 + i % 31);
    e.fingerprint["rematch_cpu"] = i == 3 ? "Model B" : "Model A";
    const auto point = [&](double ms, std::int64_t peak, int seed) {
      HistoryPoint p;
      p.real_ns = ms * 1e6 * (1 + 0.008 * wobble(i * 31 + seed));
      p.cpu_ns = p.real_ns;
      p.exact["peak_bytes"] = peak;
      return p;
    };
    e.benchmarks["cifar/sqrt"] = point(i < 28 ? 12 : 12.6, 1000, 1);
    e.benchmarks["deep64/plain"] = point(i < 24 ? 30 : 30 * (1 + 0.004 * (i - 23)), 2000, 2);
    e.benchmarks["mlp/plain"] = point(5, i < 20 ? 3000 : 3004, 3);
    entries.push_back(e);
  }
  return entries;
}

std::string example_history_text() {
  std::string text;
  for (const HistoryEntry& e : example_history()) {
    nlohmann::ordered_json j;
    j["format"] = 1;
    j["commit"] = e.commit;
    j["date"] = e.date;
    j["fingerprint"] = e.fingerprint;
    for (const auto& [name, p] : e.benchmarks) {
      j["benchmarks"][name] = {
          {"real_ns", *p.real_ns}, {"cpu_ns", *p.cpu_ns}, {"peak_bytes", p.exact.at("peak_bytes")}};
    }
    text += j.dump() + "\n";
  }
  return text;
}

std::string golden_difference(const std::string& name, const std::string& got) {
  const std::filesystem::path golden =
      std::filesystem::path(REMATCH_SOURCE_DIR) / "bench/compare/golden" / name;
  if (text_of(golden) == got) return "";
  const char* approve = std::getenv("REMATCH_APPROVE");
  if (approve != nullptr && std::string_view(approve) == "1") {
    std::ofstream(golden, std::ios::binary) << got;
    return "";
  }
  const std::filesystem::path received = std::filesystem::temp_directory_path() / name;
  std::ofstream(received, std::ios::binary) << got;
  return fmt::format("diff {} {}\nto approve all: REMATCH_APPROVE=1 ctest ... -L bench\n",
                     golden.string(), received.string());
}

}  // namespace rematch::compare
