// golden/make_times with a benchmark program that is a script. No time of this machine is judged.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <filesystem>

#include "properties/testing/shell.h"

namespace rematch::golden {
namespace {

using testing::contains;
using testing::Outcome;
using testing::run_line;
using testing::ScratchFolder;

namespace fs = std::filesystem;

/// The environment of rematch-compare is made by `ci/setup --compare`.
bool can_compare() {
  return run_line("python3 -B '" REMATCH_SOURCE_DIR
                  "/bench/compare/rematch_compare/environment.py' --print")
             .status == 0;
}

constexpr const char* kProgram = R"sh(#!/bin/sh
for a in "$@"; do
  case "$a" in
    --benchmark_list_tests=true) printf '%s\n' a/plain/float32/cpu a/k2/float32/cpu; exit 0 ;;
    --benchmark_out=*) out=${a#*=} ;;
  esac
done
cat > "$out" <<JSON
{"context": {"date": "2026-01-02T03:04:05+00:00", "rematch_format": "1", "rematch_cpu": "$CPU",
  "rematch_commit": "abc"},
 "benchmarks": [{"name": "a/plain/float32/cpu/real_time", "run_type": "iteration",
  "real_time": $MS, "cpu_time": $MS, "time_unit": "ms", "peak_bytes": $PEAK, "threads": 1}]}
JSON
)sh";

class Machine {
 public:
  Machine() {
    folder_.write("program", kProgram);
    fs::permissions(folder_.path() / "program", fs::perms::owner_all);
  }
  Outcome run(const std::string& variables, const std::string& arguments = "") const {
    return run_line("REMATCH_GOLDEN_TIMES='" + times().string() + "' " + variables +
                        " '" REMATCH_SOURCE_DIR
                        "/golden/make_times' --program ./program "
                        "--judge '" REMATCH_COMPARE "' " +
                        arguments + " 2>&1",
                    folder_.path());
  }
  fs::path times() const { return folder_.path() / "times"; }
  std::ptrdiff_t baselines() const {
    const fs::directory_iterator files(times());
    return std::count_if(begin(files), end(files), [](const fs::directory_entry& file) {
      return file.path().extension() == ".json";
    });
  }

 private:
  ScratchFolder folder_;
};

}  // namespace

TEST_CASE("times are compared with the baseline of the same machine, and with no other") {
  if (!can_compare()) SKIP("ci/setup --compare makes what is needed");
  const Machine machine;
  REQUIRE(machine.run("CPU=A MS=10 PEAK=1000").status == 0);
  CHECK(machine.baselines() == 1);
  CHECK(machine.run("CPU=A MS=10 PEAK=1000", "--check").status == 0);
  const Outcome slower = machine.run("CPU=A MS=11 PEAK=1000", "--check");
  CHECK(slower.status == 1);
  CHECK(contains(slower.out, "a/plain/float32/cpu is slower by 10.0 %"));
  const Outcome larger = machine.run("CPU=A MS=10 PEAK=1004", "--check");
  CHECK(larger.status == 1);
  CHECK(contains(larger.out, "rose by 4 B"));

  const Outcome other = machine.run("CPU=B MS=10 PEAK=1000", "--check");
  CHECK(other.status == 2);
  CHECK(contains(other.out, "no baseline of this machine and build"));
  REQUIRE(machine.run("CPU=B MS=10 PEAK=1000").status == 0);
  CHECK(machine.baselines() == 2);
  CHECK(machine.run("CPU=A MS=10 PEAK=1000", "--filter zebra").status == 2);
}

TEST_CASE("baselines of times are files that rematch-compare reads") {
  const fs::path folder = REMATCH_SOURCE_DIR "/golden/times";
  if (!fs::exists(folder)) SKIP("there is no baseline");
  if (!can_compare()) SKIP("ci/setup --compare makes what is needed");
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".json") continue;
    const std::string path = " '" + entry.path().string() + "'";
    const Outcome o = run_line("'" REMATCH_COMPARE "' --no-time" + path + path);
    INFO(o.out);
    CHECK(o.status == 0);
  }
}

}  // namespace rematch::golden
