#include "bench/compare/comparison.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <map>

#include "bench/compare/input.h"
#include "bench/compare/testing/synthetic.h"
#include "bench/compare/words.h"

namespace rematch::compare {
namespace {

ResultFile file_of(const FakeFile& fake, const std::string& path) {
  return result_from_text(to_text(fake), path);
}

/// `pairs` files in which benchmark "a" takes 10 ms, wobbling by less than a percent.
std::vector<ResultFile> runs(int pairs, double factor, const std::string& peak = "1000",
                             const std::string& path = "run") {
  std::vector<ResultFile> files;
  for (int i = 0; i < pairs; ++i) {
    FakeFile fake;
    const double wobble = 1 + 0.004 * ((i * 7 + static_cast<int>(factor * 100)) % 5 - 2) / 2;
    fake.benchmarks = {{"a", {10 * factor * wobble}, {{"peak_bytes", peak}}}};
    files.push_back(file_of(fake, path + std::to_string(i)));
  }
  return files;
}

Comparison compared(double factor, int pairs = 16, const Options& options = {}) {
  return compare(pair_sides(runs(pairs, 1), runs(pairs, factor)), options);
}

bool says(const Comparison& c, Finding::Kind kind, std::string_view part) {
  return std::any_of(c.findings.begin(), c.findings.end(), [&](const Finding& f) {
    return f.kind == kind && f.text.find(part) != std::string::npos;
  });
}

Comparison with_peaks(const std::string& base, const std::string& head) {
  return compare(pair_sides(runs(2, 1, base), runs(2, 1, head)), Options{.judge_time = false});
}

}  // namespace

TEST_CASE("a rise of an exact counter by four bytes is a regression, a fall an improvement") {
  const Comparison rose = with_peaks("2359296", "2359300");
  CHECK(rose.exit_status() == 1);
  CHECK(says(rose, Finding::Kind::regression,
             "peak_bytes of a rose by 4 B (+0.00017 %), from 2,359,296 B to 2,359,300 B"));
  const Comparison fell = with_peaks("2359300", "2359296");
  CHECK(fell.exit_status() == 0);
  CHECK(says(fell, Finding::Kind::improvement, "peak_bytes of a fell by 4 B (-0.00017 %)"));
  CHECK(with_peaks("7", "7").findings.empty());
  CHECK(says(with_peaks("0", "4"), Finding::Kind::regression, "rose by 4 B, from 0 B to 4 B"));
}

TEST_CASE("a counter that differs between repetitions of the new side alone is a regression") {
  std::vector<ResultFile> head = runs(2, 1, "1000");
  head[1].benchmarks[0].exact["peak_bytes"] = {996};
  const Options bytes_only{.judge_time = false};
  const Comparison c = compare(pair_sides(runs(2, 1), head), bytes_only);
  CHECK(says(c, Finding::Kind::regression, "differs between repetitions of the new side"));
  const Comparison swapped = compare(pair_sides(head, runs(2, 1)), bytes_only);
  CHECK(swapped.exit_status() == 0);
  CHECK(says(swapped, Finding::Kind::note, "differs between repetitions of the base"));
}

TEST_CASE("counters that are not exact are shown and never judged") {
  std::vector<ResultFile> base = runs(1, 1);
  std::vector<ResultFile> head = runs(1, 1);
  base[0].benchmarks[0].other["arena_pages"] = {10};
  head[0].benchmarks[0].other["arena_pages"] = {1e9};
  const Comparison c = compare(pair_sides(base, head), Options{.judge_time = false});
  CHECK(c.exit_status() == 0);
  CHECK(c.findings.empty());
  CHECK(c.benchmarks[0].other[0].head == 1e9);
}

TEST_CASE("what the new side lacks is a regression unless it is allowed") {
  std::vector<ResultFile> base = runs(2, 1);
  for (ResultFile& file : base) {
    file.benchmarks.push_back(file.benchmarks[0]);
    file.benchmarks[1].name = "b";
    file.benchmarks[0].exact["flops"] = {5};
  }
  Options options{.judge_time = false};
  const Comparison c = compare(pair_sides(base, runs(2, 1)), options);
  CHECK(c.exit_status() == 1);
  CHECK(says(c, Finding::Kind::regression, "b is missing on the new side"));
  CHECK(says(c, Finding::Kind::regression, "flops of a is missing on the new side"));
  options.allow_missing = true;
  CHECK(compare(pair_sides(base, runs(2, 1)), options).exit_status() == 0);
  const Comparison added = compare(pair_sides(runs(2, 1), base), Options{.judge_time = false});
  CHECK(added.exit_status() == 0);
  CHECK(says(added, Finding::Kind::note, "b is new"));
}

TEST_CASE("a benchmark that fails on the new side alone is a regression") {
  std::vector<ResultFile> head = runs(1, 1);
  head[0].benchmarks[0].error = "no memory";
  const Comparison c = compare(pair_sides(runs(1, 1), head), Options{.judge_time = false});
  CHECK(c.exit_status() == 1);
  CHECK(says(c, Finding::Kind::regression, "a failed on the new side: no memory"));
  CHECK(compare(pair_sides(head, runs(1, 1)), Options{.judge_time = false}).exit_status() == 0);
}

TEST_CASE("a verdict of time says where the interval lies") {
  CHECK(compared(1).benchmarks[0].time.verdict == TimeVerdict::same);
  CHECK(compared(1.05).benchmarks[0].time.verdict == TimeVerdict::slower);
  CHECK(compared(1 / 1.05).benchmarks[0].time.verdict == TimeVerdict::faster);
  CHECK(compared(1.02).benchmarks[0].time.verdict == TimeVerdict::unsure);
  CHECK(compared(1).exit_status() == 0);
  CHECK(compared(1.05).exit_status() == 1);
  CHECK(compared(1 / 1.05).exit_status() == 0);
  CHECK(compared(1.02).exit_status() == 3);
  CHECK(compared(1.05, 3).benchmarks[0].time.verdict == TimeVerdict::unsure);
  CHECK(compared(1.05, 16, Options{.min_effect = 0.1}).benchmarks[0].time.verdict ==
        TimeVerdict::same);
}

TEST_CASE("swapping the sides swaps the verdicts of time") {
  const std::map<TimeVerdict, TimeVerdict> mirrored{{TimeVerdict::same, TimeVerdict::same},
                                                    {TimeVerdict::slower, TimeVerdict::faster},
                                                    {TimeVerdict::faster, TimeVerdict::slower},
                                                    {TimeVerdict::unsure, TimeVerdict::unsure}};
  for (double factor = 0.9; factor < 1.1; factor += 0.0031) {
    const Comparison there = compared(factor);
    const Comparison back = compare(pair_sides(runs(16, factor), runs(16, 1)), Options{});
    CHECK(back.benchmarks[0].time.verdict == mirrored.at(there.benchmarks[0].time.verdict));
    CHECK(std::fabs(*there.benchmarks[0].time.ratio * *back.benchmarks[0].time.ratio - 1) < 1e-12);
  }
}

TEST_CASE("SLOWER and FASTER lie beyond the interval that is shown") {
  for (double factor = 0.9; factor < 1.1; factor += 0.0031) {
    for (const int pairs : {8, 12, 16, 40}) {
      const TimeResult t = compared(factor, pairs).benchmarks[0].time;
      if (t.verdict == TimeVerdict::slower) CHECK(t.low > 1.02);
      if (t.verdict == TimeVerdict::faster) CHECK(t.high < 1 / 1.02);
      if (t.verdict == TimeVerdict::same) CHECK((t.low >= 1 / 1.02 && t.high <= 1.02));
    }
  }
}

TEST_CASE("more benchmarks or more looks ask for more pairs") {
  const auto verdict = [](int pairs, int benchmarks, int looks) {
    std::vector<ResultFile> base = runs(pairs, 1);
    std::vector<ResultFile> head = runs(pairs, 1.2);
    for (int k = 1; k < benchmarks; ++k) {
      for (int i = 0; i < pairs; ++i) {
        const auto at = static_cast<std::size_t>(i);
        for (auto* files : {&base, &head}) {
          BenchmarkRun copy = base[at].benchmarks[0];
          copy.name += std::to_string(k);
          (*files)[at].benchmarks.push_back(copy);
        }
      }
    }
    return compare(pair_sides(base, head), Options{.looks = looks}).benchmarks[0].time.verdict;
  };
  // 2^-8 <= 0.01 / 2 < 2^-7, 2^-10 <= 0.01 / 10 < 2^-9, 2^-9 <= 0.01 / 4 < 2^-8.
  CHECK(verdict(7, 1, 1) == TimeVerdict::unsure);
  CHECK(verdict(8, 1, 1) == TimeVerdict::slower);
  CHECK(verdict(9, 5, 1) == TimeVerdict::unsure);
  CHECK(verdict(10, 5, 1) == TimeVerdict::slower);
  CHECK(verdict(8, 1, 2) == TimeVerdict::unsure);
  CHECK(verdict(9, 1, 2) == TimeVerdict::slower);
}

TEST_CASE("times of different machines are not compared, bytes are") {
  std::vector<ResultFile> head = runs(16, 1.5, "1004", "other");
  for (ResultFile& file : head) file.fingerprint["rematch_cpu"] = "Model B";
  const Comparison c = compare(pair_sides(runs(16, 1), head), Options{});
  CHECK(c.benchmarks[0].time.verdict == TimeVerdict::not_compared);
  CHECK(c.exit_status() == 1);
  CHECK(says(c, Finding::Kind::regression, "peak_bytes of a rose by 4 B"));
  CHECK(c.notes[0] ==
        "time is not compared: rematch_cpu differs: expected \"Model A\" as in run0, got "
        "\"Model B\" in other0");

  for (ResultFile& file : head) file.benchmarks[0].exact["peak_bytes"] = {1000};
  CHECK(compare(pair_sides(runs(16, 1), head), Options{}).exit_status() == 3);
  CHECK(compare(pair_sides(runs(16, 1), head), Options{.judge_time = false}).exit_status() == 0);
  for (ResultFile& file : head) file.fingerprint.erase("rematch_cpu");
  CHECK(compare(pair_sides(runs(16, 1), head), Options{}).notes[0].find("got none in other0") !=
        std::string::npos);
}

TEST_CASE("a difference of commits is no difference of machines") {
  std::vector<ResultFile> head = runs(16, 1);
  for (ResultFile& file : head) file.commit = "2222";
  CHECK(compare(pair_sides(runs(16, 1), head), Options{}).exit_status() == 0);
  head[3].commit = "3333";
  CHECK_THROWS_AS(pair_sides(runs(16, 1), head), InputError);
}

TEST_CASE("repetitions of two single files are paired by index, and the report says so") {
  FakeFile base;
  FakeFile head;
  base.benchmarks = {{"a", {}, {}}};
  head.benchmarks = {{"a", {}, {}}};
  for (int i = 0; i < 12; ++i) {
    base.benchmarks[0].ms.push_back(10 + i);
    head.benchmarks[0].ms.push_back((10 + i) * 1.05);
  }
  const Comparison c = compare(pair_sides({file_of(base, "a")}, {file_of(head, "b")}), Options{});
  CHECK(c.benchmarks[0].time.pairs == 12);
  CHECK(c.benchmarks[0].time.verdict == TimeVerdict::slower);
  CHECK(std::any_of(c.notes.begin(), c.notes.end(), [](const std::string& note) {
    return note.find("repetitions are paired by their index") != std::string::npos;
  }));
}

TEST_CASE("one pair is the median of one file's repetitions over the other's") {
  std::vector<ResultFile> base = runs(2, 1);
  std::vector<ResultFile> head = runs(2, 1);
  base[0].benchmarks[0].real_ns = {9, 10, 70};
  head[0].benchmarks[0].real_ns = {30, 1, 20};
  const Sides sides = pair_sides(base, head);
  const std::vector<double> ratios = log_ratios(sides, "a", Clock::real);
  REQUIRE(ratios.size() == 2);
  CHECK(ratios[0] == std::log(2.0));
}

TEST_CASE("lists of unequal length, and files without a benchmark, are refused") {
  CHECK_THROWS_AS(pair_sides(runs(3, 1), runs(2, 1)), InputError);
  CHECK_THROWS_AS(pair_sides({}, {}), InputError);
  std::vector<ResultFile> empty = runs(1, 1);
  empty[0].benchmarks.clear();
  CHECK_THROWS_AS(pair_sides(empty, empty), InputError);
  CHECK_THROWS_AS(compare(pair_sides(runs(1, 1), runs(1, 1)), Options{.filter = "z"}), InputError);
}

}  // namespace rematch::compare
