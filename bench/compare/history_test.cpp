#include "bench/compare/history.h"
#include "properties/testing/shell.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>

#include "bench/compare/input.h"
#include "bench/compare/testing/example.h"

namespace rematch::compare {
namespace {

using testing::ScratchFolder;

std::vector<ResultFile> some_files() {
  std::vector<ResultFile> files;
  for (const FakeFile& file : example_files(false, 3)) {
    files.push_back(result_from_text(to_text(file), "a.json"));
  }
  return files;
}

bool says(const HistoryReport& report, Finding::Kind kind, std::string_view part) {
  return std::any_of(report.findings.begin(), report.findings.end(), [&](const Finding& f) {
    return f.kind == kind && f.text.find(part) != std::string::npos;
  });
}

std::string refusal(const std::string& text) {
  const ScratchFolder folder;
  try {
    read_history(folder.write("history.jsonl", text));
  } catch (const InputError& e) {
    return e.what();
  }
  FAIL("accepted: " << text);
  return "";
}

}  // namespace

TEST_CASE("a line of a history is read back as it was written") {
  const ScratchFolder folder;
  const std::string line = history_line(some_files(), "");
  const std::vector<HistoryEntry> entries =
      read_history(folder.write("h.jsonl", line + "\n\n" + line + "\n"));
  REQUIRE(entries.size() == 2);
  CHECK(entries[0].commit == std::string(40, '1'));
  CHECK(entries[0].fingerprint.at("rematch_cpu") == "Model A");
  const HistoryPoint& point = entries[0].benchmarks.at("cifar/sqrt/float32/cpu");
  CHECK(point.exact.at("peak_bytes") == 76000000);
  CHECK(point.real_ns == median_time({some_files(), ""}, "cifar/sqrt/float32/cpu", Clock::real));
}

TEST_CASE("only committed results of one commit and one machine become a line") {
  std::vector<ResultFile> files = some_files();
  files[1].commit = "2222";
  CHECK_THROWS_AS(history_line(files, ""), InputError);
  files = some_files();
  files[2].fingerprint["rematch_cpu"] = "Model B";
  CHECK_THROWS_AS(history_line(files, ""), InputError);
  files = some_files();
  files[0].dirty = true;
  CHECK_THROWS_AS(history_line(files, ""), InputError);
  files = some_files();
  for (ResultFile& file : files) file.commit.clear();
  CHECK_THROWS_AS(history_line(files, ""), InputError);
  CHECK(history_line(files, "abcd").find("\"commit\":\"abcd\"") != std::string::npos);
}

TEST_CASE("a history that is no history is refused with the number of the line") {
  const std::string line = history_line(some_files(), "");
  CHECK(refusal(line + "\n" + line.substr(0, 100)).find("history.jsonl:2: not JSON") !=
        std::string::npos);
  CHECK(refusal("\n{\"format\": 2}").find("history.jsonl:2: format: expected format 1, got 2") !=
        std::string::npos);
  CHECK(refusal("\n\n").find("expected one commit per line, got none") != std::string::npos);
}

TEST_CASE("a history says since which commit a time or a counter has changed, and how far") {
  const HistoryReport report = examine_history(example_history(), "", Options{});
  CHECK(report.left_out == 1);
  CHECK(report.exit_status() == 1);
  CHECK(says(report, Finding::Kind::regression,
             "cifar/sqrt since commit " + example_history()[28].commit.substr(0, 12)));
  CHECK(says(report, Finding::Kind::regression, "(11 commits ago)"));
  CHECK(says(report, Finding::Kind::regression, "deep64/plain drifts: since commit"));
  CHECK(says(report, Finding::Kind::regression, "peak_bytes of mlp/plain rose by 4 B"));
  CHECK(report.findings.size() == 3);
}

TEST_CASE("what happened before the commit that is asked for is accepted") {
  const std::string since = example_history()[30].commit;
  const HistoryReport report = examine_history(example_history(), since, Options{});
  CHECK(report.entries.size() == 10);
  CHECK(report.entries[0].commit == since);
  CHECK_FALSE(says(report, Finding::Kind::regression, "cifar/sqrt"));
  CHECK_FALSE(says(report, Finding::Kind::regression, "peak_bytes"));
  CHECK_THROWS_AS(examine_history(example_history(), "nothing", Options{}), InputError);
}

TEST_CASE("a rise that was undone is told and is no regression") {
  std::vector<HistoryEntry> entries = example_history();
  for (std::size_t i = 0; i < entries.size(); ++i) {
    entries[i].benchmarks.erase("deep64/plain");
    entries[i].benchmarks["cifar/sqrt"].real_ns =
        *entries[i].benchmarks["mlp/plain"].real_ns * (i >= 10 && i < 25 ? 1.2 : 1);
    entries[i].benchmarks["mlp/plain"].exact["peak_bytes"] = i == 9 ? 3004 : 3000;
  }
  const HistoryReport report = examine_history(entries, "", Options{});
  CHECK(report.exit_status() == 0);
  CHECK(says(report, Finding::Kind::note, "undone since"));
  CHECK(says(report, Finding::Kind::improvement, "cifar/sqrt since commit"));
  CHECK(says(report, Finding::Kind::note, "rose by 4 B"));
}

}  // namespace rematch::compare
