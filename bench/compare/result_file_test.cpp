#include "bench/compare/result_file.h"
#include "properties/testing/shell.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <fstream>

#include "bench/compare/input.h"
#include "bench/compare/report.h"
#include "bench/compare/testing/synthetic.h"

namespace rematch::compare {
namespace {

using testing::contains;

FakeFile small() {
  FakeFile file;
  file.benchmarks = {{"cifar/sqrt/float32/cpu", {12.5, 12.25, 13}, {{"peak_bytes", "4.096e+03"}}},
                     {"mlp/plain/float32/cpu", {1.5, 1.75, 1.625}, {{"allocations", "12"}}}};
  return file;
}

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

/// The message with which the text is refused.
std::string refusal(const std::string& text) {
  try {
    result_from_text(text, "some.json");
  } catch (const InputError& e) {
    return e.what();
  }
  FAIL("accepted: " << text);
  return "";
}

}  // namespace

TEST_CASE("a result file is read as Google Benchmark wrote it") {
  const ResultFile file = result_from_text(to_text(small()), "some.json");
  CHECK(file.commit == "1111111111111111111111111111111111111111");
  CHECK_FALSE(file.dirty);
  CHECK(file.has_fingerprint);
  CHECK(file.fingerprint.size() == 2);
  CHECK(file.fingerprint.at("rematch_cpu") == "Model A");
  REQUIRE(file.benchmarks.size() == 2);
  const BenchmarkRun& run = file.benchmarks[0];
  CHECK(run.name == "cifar/sqrt/float32/cpu");
  CHECK(run.real_ns == std::vector<double>{12.5e6, 12.25e6, 13e6});
  CHECK(run.exact.at("peak_bytes") == std::vector<std::int64_t>{4096, 4096, 4096});
  CHECK(file.find("mlp/plain/float32/cpu") == &file.benchmarks[1]);
  CHECK(file.find("mlp") == nullptr);
}

TEST_CASE("every unit of time is read as nanoseconds") {
  for (const auto& [unit, ns] : {std::pair{"ns", 1.5}, std::pair{"us", 1.5e3},
                                 std::pair{"ms", 1.5e6}, std::pair{"s", 1.5e9}}) {
    FakeFile file;
    file.benchmarks = {{"a", {1.5}, {}}};
    const std::string text = replaced(to_text(file), "\"time_unit\": \"ms\"",
                                      "\"time_unit\": \"" + std::string(unit) + "\"");
    CHECK(result_from_text(text, "some.json").benchmarks[0].real_ns[0] == ns);
  }
}

TEST_CASE("suffixes that say how a benchmark ran are no part of its name") {
  for (const char* name : {"a/b/repeats:3", "a/b/repeats:12/real_time", "a/b"}) {
    FakeFile file;
    file.benchmarks = {{name, {1}, {}}};
    CHECK(result_from_text(to_text(file), "some.json").benchmarks[0].name == "a/b");
  }
  FakeFile file;
  file.benchmarks = {{"a/repeats:x", {1}, {}}};
  CHECK(result_from_text(to_text(file), "some.json").benchmarks[0].name == "a/repeats:x");
}

TEST_CASE("aggregates are left out, and a file of nothing else is refused") {
  const std::string aggregate = replaced(to_text(small()), "\"iteration\"", "\"aggregate\"");
  CHECK(result_from_text(aggregate, "some.json").benchmarks[0].real_ns.size() == 2);
  FakeFile one;
  one.benchmarks = {{"a", {1}, {}}};
  const std::string only = replaced(to_text(one), "\"iteration\"", "\"aggregate\"");
  CHECK(contains(refusal(only), "some.json: benchmarks: expected repetitions"));
}

TEST_CASE("a run that gave up has its message and no time") {
  FakeFile file;
  file.benchmarks = {{"a", {1}, {}}};
  const std::string text =
      replaced(to_text(file), "\"threads\": 1",
               "\"threads\": 1, \"error_occurred\": true, \"error_message\": \"no memory\"");
  const ResultFile read = result_from_text(text, "some.json");
  CHECK(read.benchmarks[0].error == "no memory");
  CHECK(read.benchmarks[0].real_ns.empty());
}

TEST_CASE(
    "what is no result file is refused with its name, the place, what was expected and came") {
  const std::string text = to_text(small());
  CHECK(contains(refusal(text.substr(0, text.size() / 2)), "some.json: not JSON: line"));
  CHECK(contains(refusal(text.substr(0, text.size() / 2)), "is it truncated?"));
  CHECK(contains(refusal("{\"a\": 1e999}"), "some.json: not JSON: number overflow"));
  CHECK(contains(refusal("{}"), "some.json: expected a result file"));
  CHECK(contains(refusal("[]"), "some.json: expected an object, got an array of 0"));
  CHECK(contains(refusal("ELF\x7f"), "some.json: not JSON: line 1, column 1"));
  CHECK(contains(refusal(replaced(text, "\"rematch_format\": \"1\"", "\"rematch_format\": \"2\"")),
                 "some.json: context.rematch_format: expected format 1, got \"2\""));
  CHECK(contains(refusal(replaced(text, "\"rematch_format\": \"1\",", "")),
                 "some.json: context: expected a field \"rematch_format\", got none"));
  CHECK(contains(refusal(replaced(text, "\"real_time\": 1.25", "\"real_time\": -1.25")),
                 "some.json: benchmarks[0].real_time: expected a number above zero, got -12.5"));
  CHECK(contains(refusal(replaced(text, "\"real_time\"", "\"reel_time\"")),
                 "some.json: benchmarks[0]: expected a field \"real_time\", got none"));
  CHECK(contains(refusal(replaced(text, "\"time_unit\": \"ms\"", "\"time_unit\": \"h\"")),
                 "some.json: benchmarks[0].time_unit: expected ns, us, ms or s, got \"h\""));
  CHECK(contains(refusal(replaced(text, "4.096e+03", "4096.5")),
                 "some.json: benchmarks[0].peak_bytes: expected a whole number from 0 to 2^53"));
  CHECK(contains(refusal(replaced(text, "4.096e+03", "\"4096\"")),
                 "some.json: benchmarks[0].peak_bytes: expected a number, got \"4096\""));
  CHECK(contains(refusal(replaced(text, "\"repetition_index\": 1", "\"repetition_index\": 0")),
                 "some.json: benchmarks[1].repetition_index: expected each repetition"));
  CHECK(contains(refusal(replaced(text, "\"threads\": 1", "\"threads\": 1, \"threads\": 2")),
                 "some.json: expected each field once, got \"threads\" twice"));
  CHECK(contains(refusal(replaced(text, "cifar/sqrt", "ci\\u001b[31mfar")),
                 "expected a string without control characters"));
  CHECK(contains(refusal(std::string(100, '[')), "some.json: expected at most 64 levels"));
  CHECK_THROWS_AS(read_result_file("/nowhere/at-all.json"), InputError);
}

TEST_CASE("a file cut or bent anywhere is refused, or compared: never anything else") {
  const std::string text = to_text(small());
  const auto survives = [&](const std::string& bent) {
    try {
      const ResultFile file = result_from_text(bent, "bent.json");
      const Comparison c =
          compare(pair_sides({result_from_text(text, "whole.json")}, {file}), Options{});
      const cli::Paint plain(false);
      CHECK_FALSE(text_report(c, 80, plain).empty());
      CHECK_FALSE(markdown_report(c).empty());
      CHECK_FALSE(html_report(c, {}).empty());
      CHECK_FALSE(json_report(c).empty());
      const int status = c.exit_status();
      CHECK((status == 0 || status == 1 || status == 3));
    } catch (const InputError& e) {
      CHECK(contains(e.what(), ".json: "));
    }
  };
  // The last byte is a newline, without which it is as good.
  for (std::size_t at = 0; at + 2 < text.size(); at += 97) {
    CHECK(contains(refusal(text.substr(0, std::max<std::size_t>(at, 1))), "some.json: "));
  }
  for (std::size_t at = 0; at < text.size(); ++at) {
    for (const unsigned bit : {0x01U, 0x04U, 0x10U, 0x20U, 0x80U}) {
      std::string bent = text;
      bent[at] = static_cast<char>(static_cast<unsigned char>(bent[at]) ^ bit);
      survives(bent);
    }
  }
  for (std::size_t at = 0; at < text.size(); at += 97) {
    survives(text.substr(0, at) + text.substr(std::min(text.size(), at + 13)));
    survives(text.substr(0, at) + text.substr(0, 31) + text.substr(at));
  }
}

TEST_CASE("a folder stands for its JSON files in the order of their names") {
  namespace fs = std::filesystem;
  const fs::path folder = fs::temp_directory_path() / "rematch-compare-folder";
  fs::remove_all(folder);
  fs::create_directory(folder);
  CHECK_THROWS_AS(expand_folders({folder.string()}), InputError);
  for (const char* name : {"0010.json", "0002.json", "notes.txt"})
    std::ofstream(folder / name) << "x";
  const std::vector<std::string> files = expand_folders({"a.json", folder.string()});
  CHECK(files == std::vector<std::string>{"a.json", (folder / "0002.json").string(),
                                          (folder / "0010.json").string()});
  fs::remove_all(folder);
}

}  // namespace rematch::compare
