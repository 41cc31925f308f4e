#include "properties/hunt/results.h"

#include <sys/resource.h>

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <csignal>
#include <fstream>

#include "properties/hunt/registry.h"
#include "properties/hunt/testing/equal_results.h"
#include "properties/testing/shell.h"

namespace rematch {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

constexpr const char* kHunt = R"({"cases":900,"seed":"5"})";

HuntOptions options_for(const std::string& subject, bool keep_going) {
  HuntOptions options;
  options.seed = 5;
  options.cases = 900;
  options.jobs = 2;
  options.keep_going = keep_going;
  options.make_subject = [subject] { return make_subject(subject, Device::cpu, {}); };
  return options;
}

/// Hunts part `number` of `of` into a file; stops after so many cases, where that is asked for.
std::filesystem::path hunt_part(HuntOptions options, const std::filesystem::path& folder,
                                Shard shard, std::uint64_t stop_after = UINT64_MAX,
                                bool resume = false) {
  const auto file = folder / ("part" + std::to_string(shard.number));
  options.shard = shard;
  ResultsWriter results(file, kHunt, options, resume);
  std::atomic<bool> stop{false};
  std::uint64_t seen = 0;
  options.before = &results.before().total;
  options.stop = &stop;
  options.committed = [&](const Tally& tally) {
    results.add(tally);
    seen += tally.cases;
    if (seen >= stop_after) stop = true;
  };
  const HuntResult result = hunt(options);
  results.finish(!result.interrupted);
  return file;
}

TEST_CASE("the parts of a hunt come to what one hunt comes to") {
  for (const char* subject : {"engine", "engine:R1"}) {
    for (const bool keep_going : {false, true}) {
      const HuntOptions options = options_for(subject, keep_going);
      const testing::ScratchFolder folder;
      std::vector<std::filesystem::path> files;
      // Not in order, and more parts than one.
      for (const std::uint64_t part : {3, 1, 4, 2}) {
        files.push_back(hunt_part(options, folder.path(), {part, 4}));
      }
      INFO(subject << ", keep_going " << keep_going);
      const HuntResult merged = finish_hunt(options, merge_results(files, kHunt, options));
      const HuntResult whole = hunt(options);
      testing::check_equal(merged, whole);
      CHECK(merged.versions == whole.versions);
    }
  }
}

TEST_CASE("a part that was stopped anywhere goes on where it was") {
  const HuntOptions options = options_for("engine:R2", true);
  const testing::ScratchFolder folder;
  const testing::ScratchFolder other;
  const auto whole = hunt_part(options, other.path(), {2, 3});
  auto file = hunt_part(options, folder.path(), {2, 3}, 40);
  CHECK_FALSE(read_results(file, options).done);
  // Killed in the middle of a line.
  const std::string text = testing::text_of(file);
  for (const std::size_t lost : {std::size_t{1}, std::size_t{20}, text.size() - 2}) {
    std::ofstream(file, std::ios::binary) << text.substr(0, text.size() - lost);
    file = hunt_part(options, folder.path(), {2, 3}, UINT64_MAX, true);
    const Results results = read_results(file, options);
    CHECK(results.done);
    CHECK(to_json(results.total) == to_json(read_results(whole, options).total));
  }
}

/// No file may grow beyond so many bytes, as on a disk that is full.
class FullDisk {
 public:
  explicit FullDisk(std::uint64_t bytes) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FullDisk() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, signal_);
  }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

 private:
  rlimit before_{};
  void (*signal_)(int) = std::signal(SIGXFSZ, SIG_IGN);
};

TEST_CASE("behind a disk that was full for a moment, a part goes on without a gap") {
  const HuntOptions options = options_for("engine:R2", true);
  const testing::ScratchFolder folder;
  const testing::ScratchFolder other;
  const auto whole = hunt_part(options, other.path(), {1, 1});
  const auto file = hunt_part(options, folder.path(), {1, 1}, 40);
  const Results before = read_results(file, options);
  {
    ResultsWriter results(file, kHunt, options, true);
    {
      const FullDisk full(std::filesystem::file_size(file) + 100);
      CHECK_THROWS_AS(results.add(before.total), std::runtime_error);
    }
    // Tallies of other threads, which have not stopped yet.
    results.add(before.total);
    results.finish(true);
  }
  const Results after = read_results(file, options);
  CHECK_FALSE(after.done);
  CHECK(to_json(after.total) == to_json(before.total));
  hunt_part(options, folder.path(), {1, 1}, UINT64_MAX, true);
  CHECK(to_json(read_results(file, options).total) == to_json(read_results(whole, options).total));
}

TEST_CASE("results that lack cases or have them twice are not merged") {
  const HuntOptions options = options_for("engine", false);
  const testing::ScratchFolder folder;
  const auto one = hunt_part(options, folder.path(), {1, 2});
  const auto two = hunt_part(options, folder.path(), {2, 2});
  const std::string text = testing::text_of(two);
  // The first tally, twice and not at all.
  const std::size_t begin = text.find('\n') + 1;
  const std::size_t end = text.find('\n', begin) + 1;
  for (const std::string& wrong :
       {text.substr(0, end) + text.substr(begin), text.substr(0, begin) + text.substr(end)}) {
    std::ofstream(two, std::ios::binary) << wrong;
    CHECK_THROWS_MATCHES(merge_results({one, two}, kHunt, options), std::invalid_argument,
                         MessageMatches(ContainsSubstring("expected 900 cases in all parts, got")));
  }
}

TEST_CASE("parts that are missing, doubled or not done are named") {
  const HuntOptions options = options_for("engine", false);
  const testing::ScratchFolder folder;
  const testing::ScratchFolder other;
  const auto one = hunt_part(options, folder.path(), {1, 4});
  const auto two = hunt_part(options, folder.path(), {2, 4}, 8);
  const auto again = hunt_part(options, other.path(), {1, 4});
  CHECK_THROWS_MATCHES(merge_results({one, two, again}, kHunt, options), std::invalid_argument,
                       MessageMatches(ContainsSubstring("part 1 is there twice: " + one.string()) &&
                                      ContainsSubstring("part 2 is not done") &&
                                      ContainsSubstring("of 4 parts these are missing: 3, 4")));
}

TEST_CASE("a file of results is of one part of one hunt, and has one writer") {
  HuntOptions options = options_for("engine", false);
  options.shard = {1, 4};
  const testing::ScratchFolder folder;
  const auto file = hunt_part(options, folder.path(), {1, 4});
  const auto refused = [&](const char* hunt, bool resume, const std::string& why) {
    CHECK_THROWS_MATCHES(ResultsWriter(file, hunt, options, resume), std::invalid_argument,
                         MessageMatches(ContainsSubstring(why)));
  };
  refused(kHunt, false, "is there already; --resume goes on");
  refused(R"({"cases":900,"seed":"6"})", true, "seed \"6\", got \"5\"");
  // A seed says more than the hash that follows from it.
  refused(R"({"cases":900,"first_cases":"a1","seed":"6"})", true, "seed \"6\", got \"5\"");
  refused(R"({"cases":900,"first_cases":"a1","seed":"5"})", true, "another commit");
  options.shard = {2, 4};
  refused(kHunt, true, "expected part 2 of 4, got part 1 of 4");
  options.shard = {1, 4};
  {
    const ResultsWriter writer(file, kHunt, options, true);
    refused(kHunt, true, "another process is writing");
  }
  // A file that holds no results is left as it is.
  for (const char* text : {"no newline", "a line\nand more"}) {
    const std::filesystem::path other = folder.write("other", text);
    CHECK_THROWS_AS(ResultsWriter(other, kHunt, options, false), std::invalid_argument);
    CHECK_THROWS_AS(ResultsWriter(other, kHunt, options, true), std::invalid_argument);
    CHECK(testing::text_of(other) == text);
  }
  CHECK_THROWS_MATCHES(merge_results({file}, R"({"cases":900,"seed":"7"})", options),
                       std::invalid_argument,
                       MessageMatches(ContainsSubstring("seed \"7\", got \"5\"")));
  std::ofstream(file, std::ios::app) << "{\"tally\": 3}\n";
  refused(kHunt, true, "line");
}

}  // namespace
}  // namespace rematch
