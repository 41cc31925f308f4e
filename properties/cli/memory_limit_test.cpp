// Hunts in processes whose memory is limited, as users of the program meet them.
#include <catch2/catch_test_macros.hpp>
#include <string>

#include "properties/cli/testing/program.h"

// Sanitizers reserve terabytes of addresses.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

namespace rematch {
namespace {

using testing::check;
using testing::contains;
using testing::Outcome;
using testing::run;

const std::string kHunt = "check --cases 300 --seed 3 --no-regressions --jobs 2 2>&1";
const auto kAnywhere = std::filesystem::temp_directory_path();

Outcome run_limited(int kilobytes, const std::string& arguments) {
  return run(arguments, kAnywhere, "ulimit -c 0; ulimit -v " + std::to_string(kilobytes) + "; ");
}

std::string record_hash(const Outcome& o) {
  const std::size_t at = o.out.find("record hash ");
  return at == std::string::npos ? "none" : o.out.substr(at, 28);
}

}  // namespace

TEST_CASE("a hunt under a limit of memory says that it is slower, and judges as without one") {
  const Outcome free = run(kHunt);
  check(free, 0);
  CHECK_FALSE(contains(free.out, "ulimit"));
  const Outcome limited = run_limited(250'000, kHunt);
  check(limited, 0, {"slower than usual", "2 jobs want 384 MB"});
  CHECK(record_hash(limited) == record_hash(free));
}

TEST_CASE("memory that runs out is told as that, and no verdict about the subject") {
  int kilobytes = 10'000;
  // The program, its libraries and nothing else.
  while (run_limited(kilobytes, "--version").status != 0) kilobytes += 1'000;
  int told = 0;
  for (Outcome o; o.status != 0; kilobytes += 1'000) {
    o = run_limited(kilobytes, kHunt);
    INFO(kilobytes << " KB: status " << o.status << "\n" << o.out);
    REQUIRE((o.status == 0 || o.status == 2));
    REQUIRE_FALSE(contains(o.out, "VIOLATED"));
    if (o.status == 0) continue;
    REQUIRE(contains(o.out, "memory ran out"));
    ++told;
  }
  CHECK(told > 0);
}

TEST_CASE("memory that runs out anywhere ends the program, with a sentence") {
  const auto failing_from = [](int from, const std::string& arguments) {
    return run(arguments, kAnywhere,
               "ulimit -c 0; LD_PRELOAD='" REMATCH_FAILING_ALLOCATIONS "' REMATCH_FAIL_FROM=" +
                   std::to_string(from) + " ");
  };
  // Before it, libraries are loaded.
  int begin = 1000;
  while (failing_from(begin, "--version 2>&1").status > 128) begin += 10;
  int told = 0;
  // Each allocation while profiles are read, whose destructors allocate; the hunt makes many more.
  for (int from = begin;; from += from < begin + 300 ? 1 : from / 8) {
    const Outcome o = failing_from(from, kHunt);
    INFO("from allocation " << from << " on: status " << o.status << "\n" << o.out);
    REQUIRE((o.status == 0 || o.status == 2));
    REQUIRE_FALSE(contains(o.out, "VIOLATED"));
    if (o.status == 0) break;
    REQUIRE(contains(o.out, "memory ran out"));
    ++told;
  }
  CHECK(told > 0);
}

}  // namespace rematch

#endif
