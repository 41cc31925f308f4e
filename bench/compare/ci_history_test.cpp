// ci/history keeps one line a commit and machine.
#include <fmt/format.h>
#include <algorithm>
#include <catch2/catch_test_macros.hpp>

#include "bench/compare/testing/example.h"
#include "properties/testing/shell.h"

namespace rematch::compare {
namespace {

using testing::Outcome;
using testing::run_line;
using testing::ScratchFolder;
using testing::text_of;

Outcome history(const ScratchFolder& folder, const std::string& arguments) {
  return run_line("'" REMATCH_SOURCE_DIR "/ci/history' " + arguments +
                      " --judge '" REMATCH_COMPARE "' --file history.jsonl",
                  folder.path());
}

std::string result(char commit, double ms, const char* cpu = "Model A") {
  FakeFile file;
  file.commit = std::string(40, commit);
  file.cpu = cpu;
  file.benchmarks = {{"a", {ms}, {{"peak_bytes", "1000"}}}};
  return to_text(file);
}

}  // namespace

TEST_CASE("ci/history appends a commit once for each machine, and shows what has changed") {
  if (run_line("python3 -c ''").status != 0) SKIP("python3 is needed");
  const ScratchFolder folder;
  const auto lines = [&] {
    const std::string text = text_of(folder.path() / "history.jsonl");
    return std::count(text.begin(), text.end(), '\n');
  };
  for (int i = 0; i < 16; ++i) {
    folder.write("r.json",
                 result(static_cast<char>('a' + i), i < 8 ? 10 + 0.001 * i : 11 + 0.001 * i));
    CHECK(history(folder, "append r.json").status == 0);
  }
  CHECK(lines() == 16);
  const Outcome twice = history(folder, "append r.json");
  CHECK(twice.status == 0);
  CHECK(twice.out.find("already") != std::string::npos);
  CHECK(lines() == 16);

  const Outcome shown = history(folder, "show");
  INFO(shown.out);
  CHECK(shown.status == 1);
  CHECK(shown.out.find("a since commit iiiiiiiiiiii: +10.") != std::string::npos);
  CHECK(history(folder, "show --since jjjj").status == 0);

  folder.write("other.json", result('p', 5, "Model B"));
  CHECK(history(folder, "append other.json").status == 0);
  CHECK(lines() == 17);
}

TEST_CASE("folders are commits of their own, in the order in which they were measured") {
  if (run_line("python3 -c ''").status != 0) SKIP("python3 is needed");
  const ScratchFolder folder;
  const auto dated = [](char commit, const char* year) {
    std::string text = result(commit, 10);
    return text.replace(text.find("2026-01"), 4, year);
  };
  folder.write("one/new/r.json", dated('c', "2027"));
  folder.write("two/new/r.json", dated('b', "2025"));
  folder.write("six/new/r.json", dated('c', "2028"));
  const Outcome o = history(folder, "append */new");
  INFO(o.out);
  CHECK(o.status == 0);
  const std::string text = text_of(folder.path() / "history.jsonl");
  CHECK(std::count(text.begin(), text.end(), '\n') == 2);
  CHECK(text.find(std::string(40, 'b')) < text.find(std::string(40, 'c')));
  // One that cannot be read, and nothing is written.
  folder.write("bad/new/r.json", "{");
  folder.write("last/new/r.json", dated('d', "2029"));
  CHECK(history(folder, "append */new").status == 2);
  CHECK(text_of(folder.path() / "history.jsonl") == text);
}

TEST_CASE("ci/history leaves the history alone when something is wrong") {
  if (run_line("python3 -c ''").status != 0) SKIP("python3 is needed");
  const ScratchFolder folder;
  folder.write("cut.json", result('a', 1).substr(0, 200));
  CHECK(history(folder, "append cut.json").status == 2);
  CHECK(history(folder, "append").status == 2);
  CHECK(history(folder, "forget").status == 2);
  CHECK_FALSE(std::filesystem::exists(folder.path() / "history.jsonl"));
  folder.write("history.jsonl", "not a line\n");
  folder.write("good.json", result('a', 1));
  const Outcome o = history(folder, "append good.json");
  CHECK(o.status == 2);
  CHECK(o.out.find("history.jsonl:1: expected a line of a history") != std::string::npos);
  CHECK(text_of(folder.path() / "history.jsonl") == "not a line\n");
}

}  // namespace rematch::compare
