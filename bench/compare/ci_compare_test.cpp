// ci/compare in a small repository of its own, whose benchmark program is a script.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <fstream>
#include <nlohmann/json.hpp>

#include "properties/testing/shell.h"

namespace rematch::compare {
namespace {

using testing::contains;
using testing::Outcome;
using testing::run_line;
using testing::ScratchFolder;
using testing::text_of;

namespace fs = std::filesystem;

/// Takes 10 ms times PERCENT / 100, give or take half a percent, which cannot change a verdict.
/// EXTRA runs in each process.
constexpr std::string_view kProgram = R"sh(#!/bin/sh
for a in "$@"; do
  case "$a" in
    --benchmark_list_tests=true) printf '%s\n' NAMES; exit 0 ;;
    --benchmark_filter=*) filter=${a#*=} ;;
    --benchmark_out=*) out=${a#*=} ;;
  esac
done
EXTRA
# Noise that is the same in each test run: of a name, and of how often this program has run.
run=$(($(cat "$0.runs" 2>/dev/null || echo 0) + 1))
echo "$run" > "$0.runs"
entries=
for name in $(printf '%s\n' NAMES | grep -E "$filter"); do
  noise=$(($(printf %s "$name $run PERCENT" | cksum | cut -d' ' -f1) % 1000))
  entries="$entries${entries:+,}
  {\"name\": \"$name/real_time\", \"run_type\": \"iteration\", \"repetition_index\": 0,
   \"real_time\": $((PERCENT * 99500 + PERCENT * noise)), \"cpu_time\": 1.0, \"time_unit\": \"ns\",
   \"peak_bytes\": PEAK}"
done
cat > "$out" <<JSON
{"context": {"date": "2026-01-02T03:04:05+00:00", "host_name": "host", "num_cpus": 2,
  "library_build_type": "release"}, "benchmarks": [$entries]}
JSON
)sh";

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at)) {
    text.replace(at, from.size(), to);
    at += to.size();
  }
  return text;
}

/// A repository in which each commit is a benchmark program.
class Repository {
 public:
  Repository() {
    run("git init -q -b main .");
    fs::create_directory(folder_.path() / "ci");
    fs::create_directories(folder_.path() / "bench/compare");
    for (const char* file : {"ci/compare", "bench/compare/measuring.py"}) {
      fs::copy_file(fs::path(REMATCH_SOURCE_DIR) / file, folder_.path() / file);
    }
    folder_.write(".gitignore", "/build/\n");
    folder_.write("CMakeLists.txt",
                  "cmake_minimum_required(VERSION 3.25)\nproject(fake NONE)\n"
                  "add_custom_target(rematch-bench COMMAND mkdir -p bin\n"
                  "  COMMAND cp ${CMAKE_SOURCE_DIR}/program bin/rematch-bench)\n");
  }

  Outcome run(const std::string& line) const { return run_line(line, folder_.path()); }

  /// The program as it will be with the next commit.
  void write_program(int percent, const char* peak, const char* names = "a/plain a/sqrt",
                     const std::string& extra = ":") const {
    std::string text = replaced(std::string(kProgram), "PERCENT", std::to_string(percent));
    text = replaced(text, "PEAK", peak);
    text = replaced(text, "NAMES", names);
    folder_.write("program", replaced(text, "EXTRA", extra));
    fs::permissions(folder_.path() / "program", fs::perms::owner_all);
  }

  void commit() const {
    const Outcome o =
        run("git add -A && git -c user.name=a -c user.email=a@b commit -q -m 'a commit'");
    INFO(o.out);
    REQUIRE(o.status == 0);
  }

  /// With the JSON on stdout and all else in the file "messages".
  Outcome compare(const std::string& arguments) const {
    return run("ci/compare --judge '" REMATCH_COMPARE "' " + arguments + " 2>messages");
  }
  std::string messages() const { return text_of(folder_.path() / "messages"); }
  const fs::path& path() const { return folder_.path(); }

 private:
  ScratchFolder folder_;
};

bool can_run() {
  return run_line("python3 -c '' && git --version && cmake --version && ninja --version").status ==
         0;
}

}  // namespace

TEST_CASE("ci/compare builds two commits, measures them in turn and judges them") {
  if (!can_run()) SKIP("python3, git, cmake and ninja are needed");
  const Repository repository;
  repository.write_program(100, "1000");
  repository.commit();
  repository.write_program(106, "1004");
  repository.commit();

  const Outcome o = repository.compare("HEAD~1 HEAD --json");
  INFO(o.out << repository.messages());
  CHECK(o.status == 1);
  const auto j = nlohmann::json::parse(o.out);
  for (const auto& b : j["benchmarks"]) {
    CHECK(b["time"]["verdict"] == "SLOWER");
    CHECK(b["counters"]["peak_bytes"]["change"] == "rose");
    // Four above the fewest: 2^-11 <= 0.01 / (2 * 2 * 3) < 2^-10.
    CHECK(b["time"]["pairs"] == 15);
  }
  CHECK(contains(repository.messages(), "building rematch-bench of HEAD~1"));

  CHECK(contains(repository.messages(), "timing 2 benchmarks"));

  // What is built is kept; a commit against itself is the same.
  const Outcome again = repository.compare("HEAD HEAD --markdown --html page.html");
  CHECK(again.status == 0);
  CHECK(contains(again.out, "NO REGRESSION"));
  CHECK_FALSE(contains(repository.messages(), "building"));
  CHECK(text_of(repository.path() / "page.html").starts_with("<!DOCTYPE html>"));

  // The checkout with changes that are not committed, which are left alone.
  repository.write_program(120, "1004");
  const Outcome checkout = repository.compare("HEAD --filter plain --json");
  CHECK(checkout.status == 1);
  CHECK(nlohmann::json::parse(checkout.out)["benchmarks"].size() == 1);
  CHECK(nlohmann::json::parse(checkout.out)["new"]["label"] == "checkout");
  CHECK(contains(repository.run("git status --short").out, "M program"));
  CHECK(repository.compare("HEAD . --filter plain --json").status == 1);
  CHECK_FALSE(contains(repository.messages(), "building"));

  CHECK(repository.compare("--clean").status == 0);
  CHECK_FALSE(fs::exists(repository.path() / "build/compare"));
  const std::string trees = repository.run("git worktree list").out;
  CHECK(std::count(trees.begin(), trees.end(), '\n') == 1);
}

TEST_CASE("ci/compare measures what is unsure again, as often as it may look") {
  if (!can_run()) SKIP("python3, git, cmake and ninja are needed");
  const Repository repository;
  repository.write_program(100, "1000");
  repository.commit();
  repository.write_program(102, "1000");
  repository.commit();
  const Outcome o = repository.compare("HEAD~1 HEAD --json --pairs 5");
  INFO(o.out << repository.messages());
  CHECK(o.status == 3);
  const auto j = nlohmann::json::parse(o.out);
  CHECK(j["options"]["looks"] == 3);
  for (const auto& b : j["benchmarks"]) CHECK(b["time"]["pairs"] == 30);
  CHECK(contains(repository.messages(), "2 of 2 are unsure; measuring them again"));

  const Outcome short_time = repository.compare("HEAD~1 HEAD --json --budget 0.001s");
  CHECK(short_time.status == 3);
  CHECK(nlohmann::json::parse(short_time.out)["benchmarks"][0]["time"]["pairs"] == 1);
}

TEST_CASE("ci/compare counts every benchmark, and times a sample or what it is told to") {
  if (!can_run()) SKIP("python3, git, cmake and ninja are needed");
  const Repository repository;
  const char* names = "a/plain/float32/cpu a/sqrt/float32/cpu a/k2/float32/cpu a/sqrt/float64/cpu";
  repository.write_program(100, "1000", names);
  repository.commit();
  repository.write_program(100, "1004", names);
  repository.commit();
  const auto timed = [&](const std::string& arguments) {
    const Outcome o = repository.compare("HEAD~1 HEAD --json --budget 0.001s " + arguments);
    INFO(o.out << repository.messages());
    CHECK(o.status == 1);
    std::vector<std::string> found;
    const auto j = nlohmann::json::parse(o.out);
    for (const auto& b : j["benchmarks"]) {
      CHECK(b["counters"]["peak_bytes"]["change"] == "rose");
      if (b["time"]["pairs"] > 0) found.push_back(b["name"]);
    }
    CHECK(j["benchmarks"].size() == 4);
    return found;
  };
  const std::vector<std::string> sample{"a/plain/float32/cpu", "a/sqrt/float32/cpu"};
  CHECK(timed("") == sample);
  CHECK(timed("--time .").size() == 4);
  CHECK(timed("--time k2") == std::vector<std::string>{"a/k2/float32/cpu"});
  CHECK(repository.compare("HEAD~1 HEAD --time zebra").status == 2);
}

TEST_CASE("ci/compare judges what was measured when it is interrupted") {
  if (!can_run()) SKIP("python3, git, cmake and ninja are needed");
  const Repository repository;
  repository.write_program(100, "1000");
  repository.commit();
  const std::string count = (repository.path() / "count").string();
  repository.write_program(100, "1004", "a/plain a/sqrt",
                           "echo run >> '" + count + "'\nif [ $(wc -l < '" + count +
                               "') -eq 8 ]; then kill -INT $PPID; fi");
  repository.commit();
  const Outcome o = repository.compare("HEAD~1 HEAD --json");
  INFO(o.out << repository.messages());
  CHECK(o.status == 130);
  CHECK(contains(repository.messages(), "interrupted: judged what had been measured"));
  const auto j = nlohmann::json::parse(o.out);
  CHECK(j["exit_status"] == 1);
  const int pairs = j["benchmarks"][0]["time"]["pairs"];
  CHECK((pairs == 3 || pairs == 4));
}

TEST_CASE("ci/compare reports benchmarks that one commit lacks") {
  if (!can_run()) SKIP("python3, git, cmake and ninja are needed");
  const Repository repository;
  repository.write_program(100, "1000", "a/plain a/old.one");
  repository.commit();
  repository.write_program(100, "1000", "a/plain a/new.one");
  repository.commit();
  const Outcome o = repository.compare("HEAD~1 HEAD");
  CHECK(o.status == 1);
  CHECK(contains(o.out, "a/old.one is missing on the new side"));
  CHECK(contains(o.out, "a/new.one is new"));
  CHECK(repository.compare("HEAD~1 HEAD --allow-missing").status == 0);
}

TEST_CASE("ci/compare says what is wrong with a commit, a program or its arguments") {
  if (!can_run()) SKIP("python3, git, cmake and ninja are needed");
  const Repository repository;
  repository.write_program(100, "1000");
  repository.commit();
  const auto refused = [&](const std::string& arguments, std::string_view message) {
    const Outcome o = repository.compare(arguments);
    INFO(arguments << ":\n" << o.out << repository.messages());
    CHECK(o.status == 2);
    CHECK(contains(repository.messages(), message));
  };
  refused("", "BASE is expected");
  refused("nowhere HEAD", "no commit is named 'nowhere'");
  refused("HEAD HEAD --budget soon", "expected a duration");
  refused("HEAD HEAD --filter '('", "not a regular expression");
  refused("HEAD HEAD --filter zebra", "no benchmark of rematch-bench matches 'zebra'");
  refused("HEAD HEAD --json --markdown", "exclude each other");
  refused("HEAD HEAD --program rematch-other", "'HEAD' (");

  repository.write_program(100, "1000", "a/plain", "echo no memory >&2; exit 7");
  repository.commit();
  refused("HEAD~1 HEAD", "no memory");

  std::ofstream(repository.path() / "CMakeLists.txt") << "project(fake NONE)\n";
  repository.commit();
  refused("HEAD~2 HEAD", "has no rematch-bench and no rematch-engine-steps");

  std::ofstream(repository.path() / "CMakeLists.txt") << "message(FATAL_ERROR \"broken\")\n";
  repository.commit();
  refused("HEAD~3 HEAD", "configuring of 'HEAD' failed");
}

}  // namespace rematch::compare
