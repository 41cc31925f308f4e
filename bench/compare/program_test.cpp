// The program as its users meet it: files in, text and exit status out.
#include <fmt/format.h>
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include "bench/compare/testing/example.h"
#include "properties/testing/shell.h"

namespace rematch::compare {
namespace {

using testing::contains;
using testing::Outcome;
using testing::run_line;
using testing::ScratchFolder;
using testing::text_of;

namespace fs = std::filesystem;

Outcome run_compare(const std::string& arguments) {
  return run_line("'" REMATCH_COMPARE "' " + arguments);
}

std::string argument(const fs::path& path) { return " '" + path.string() + "'"; }

/// Folders base and new in which benchmark "a" takes `factor` of its time on the new side.
void write_pairs(const ScratchFolder& folder, double factor, int pairs, const char* peak = "1000",
                 const char* cpu = "Model A") {
  for (int i = 0; i < pairs; ++i) {
    FakeFile file;
    file.benchmarks = {{"a", {10 + 0.01 * ((i * 7) % 5)}, {{"peak_bytes", "1000"}}}};
    folder.write(fmt::format("base/{:04}.json", i), to_text(file));
    file.cpu = cpu;
    file.benchmarks = {{"a", {(10 + 0.01 * ((i * 11) % 5)) * factor}, {{"peak_bytes", peak}}}};
    folder.write(fmt::format("new/{:04}.json", i), to_text(file));
  }
}

Outcome compare_pairs(double factor, int pairs, const std::string& options = "",
                      const char* peak = "1000", const char* cpu = "Model A") {
  const ScratchFolder folder;
  write_pairs(folder, factor, pairs, peak, cpu);
  return run_compare(argument(folder.path() / "base") + argument(folder.path() / "new") + " " +
                     options);
}

}  // namespace

TEST_CASE("the exit status is 0 without a regression, 1 with one, 3 where a time is unsure") {
  CHECK(compare_pairs(1, 12).status == 0);
  CHECK(compare_pairs(0.9, 12).status == 0);
  CHECK(compare_pairs(1.05, 12).status == 1);
  CHECK(compare_pairs(1.02, 12).status == 3);
  CHECK(compare_pairs(1.05, 4).status == 3);
  CHECK(compare_pairs(1, 1, "", "1004").status == 1);
  CHECK(compare_pairs(1, 1, "--no-time").status == 0);
  CHECK(compare_pairs(1, 12, "", "1000", "Model B").status == 3);
  CHECK(compare_pairs(1, 12, "", "1004", "Model B").status == 1);
  CHECK(compare_pairs(1, 12, "--no-time", "1000", "Model B").status == 0);
  CHECK(compare_pairs(1.05, 12, "--min-effect 10%").status == 0);
  CHECK(compare_pairs(1.02, 12, "--min-effect 0.5").status == 1);
}

TEST_CASE("usage and unreadable input end in exit status 2 and a message") {
  const ScratchFolder folder;
  FakeFile file;
  file.benchmarks = {{"a", {1}, {}}};
  const std::string good = folder.write("good.json", to_text(file));
  const std::string cut = folder.write("cut.json", to_text(file).substr(0, 300));
  file.format = "7";
  const std::string newer = folder.write("newer.json", to_text(file));
  const std::string foreign = folder.write("foreign.json", "{\"a\": 1}");
  const auto refused = [&](const std::string& arguments, std::string_view message) {
    const Outcome o = run_compare(arguments);
    INFO(arguments << ":\n" << o.out);
    CHECK(o.status == 2);
    CHECK(contains(o.out, message));
  };
  refused(argument(good) + argument(cut), "cut.json: not JSON: line");
  refused(argument(cut) + argument(good), "cut.json: not JSON: line");
  refused(argument(good) + argument(newer),
          "newer.json: context.rematch_format: expected format 1");
  refused(argument(good) + argument(foreign), "foreign.json: expected a result file");
  refused(argument(good) + argument(folder.path() / "none.json"),
          "none.json: cannot be read: No such");
  refused(argument(good), "expected BASE NEW");
  refused(argument(good) + " --new" + argument(good), "expected BASE NEW");
  refused("--base" + argument(good) + argument(good) + " --new" + argument(good), "as many files");
  refused(argument(good) + argument(good) + " --min-effect x",
          "--min-effect: expected a percentage");
  refused(argument(good) + argument(good) + " --filter '('", "--filter: not a regular expression");
  refused(argument(good) + argument(good) + " --filter zebra", "no benchmark's name matches");
  refused(argument(good) + argument(good) + " --html /nowhere/page.html", "cannot write /nowhere");
  refused(argument(good) + argument(good) + " --json --markdown", "--json");
  refused(argument(good) + argument(good) + " --looks 0", "--looks");
  refused(argument(good) + argument(good) + " --history" + argument(folder.path() / "none"),
          "none: cannot");
  const std::string timelines = " --timelines" + argument(good) + argument(good);
  refused(argument(good) + argument(good) + timelines, "--html");
  refused(argument(good) + argument(good) + timelines + " --html" + argument(folder.path() / "p"),
          "good.json: benchmarks: expected an object");
  refused(argument(good) + argument(good) + " --since abc", "--history");
  refused("--history" + argument(folder.write("h", "\n{}")), "h:2: expected a field \"format\"");
}

TEST_CASE("files of lists are paired in the order given, of folders by their names") {
  const ScratchFolder folder;
  write_pairs(folder, 1.05, 12);
  std::string lists = "--json --base";
  for (int i = 0; i < 12; ++i) lists += argument(folder.path() / fmt::format("base/{:04}.json", i));
  lists += " --new";
  for (int i = 0; i < 12; ++i) lists += argument(folder.path() / fmt::format("new/{:04}.json", i));
  const std::string folders =
      "--json" + argument(folder.path() / "base") + argument(folder.path() / "new");
  const Outcome by_list = run_compare(lists);
  CHECK(by_list.status == 1);
  CHECK(by_list.out == run_compare(folders).out);
  // One without a partner counts for its bytes alone.
  fs::remove(folder.path() / "new/0005.json");
  const auto j = nlohmann::json::parse(run_compare(folders).out);
  CHECK(j["benchmarks"][0]["time"]["pairs"] == 11);
}

TEST_CASE(
    "the report is plain and as wide as the terminal says, and has a page and JSON beside it") {
  const ScratchFolder folder;
  write_pairs(folder, 1.05, 12);
  const std::string sides = argument(folder.path() / "base") + argument(folder.path() / "new");
  const Outcome text = run_line("COLUMNS=50 '" REMATCH_COMPARE "'" + sides + " --html" +
                                argument(folder.path() / "page.html"));
  CHECK(text.status == 1);
  CHECK(text.out.starts_with("REGRESSION: 1 regression\n"));
  CHECK_FALSE(contains(text.out, "\033"));
  CHECK(text_of(folder.path() / "page.html").starts_with("<!DOCTYPE html>"));
  CHECK(nlohmann::json::parse(run_compare(sides + " --json").out)["exit_status"] == 1);
  CHECK(run_compare(sides + " --markdown").out.starts_with("### Benchmarks: REGRESSION"));
}

TEST_CASE("rematch compare is rematch-compare") {
  const ScratchFolder folder;
  write_pairs(folder, 1.05, 12);
  const std::string sides = argument(folder.path() / "base") + argument(folder.path() / "new");
  const Outcome o = run_line("'" REMATCH_PROGRAM "' compare" + sides);
  CHECK(o.status == 1);
  CHECK(o.out == run_compare(sides).out);
}

TEST_CASE("the clock of the CPU is another clock") {
  const ScratchFolder folder;
  write_pairs(folder, 1.05, 12);
  const std::string sides = argument(folder.path() / "base") + argument(folder.path() / "new");
  for (const char* clock : {"real", "cpu"}) {
    const auto j = nlohmann::json::parse(run_compare(sides + " --json --clock " + clock).out);
    CHECK(j["options"]["clock"] == clock);
    // The files say that three quarters of the time were spent on the CPU.
    const double ms = j["benchmarks"][0]["time"]["base_ns"].get<double>() / 1e6;
    CHECK((ms > 9) == (std::string_view(clock) == "real"));
  }
}

TEST_CASE("the clock is that of the CPU when both sides waited for a core, and only then") {
  const ScratchFolder folder;
  const auto clock = [&](double base, double head, const std::string& context) {
    for (int i = 0; i < 4; ++i) {
      FakeFile file;
      file.benchmarks = {{"a", {10, 10, 10}, {}}};
      file.extra_context = context;
      file.cpu_share = base;
      folder.write(fmt::format("base/{}.json", i), to_text(file));
      file.cpu_share = head;
      folder.write(fmt::format("new/{}.json", i), to_text(file));
    }
    const std::string sides = argument(folder.path() / "base") + argument(folder.path() / "new");
    const auto j = nlohmann::json::parse(run_compare(sides + " --json").out);
    CHECK(contains(j["notes"].dump(), "CPU times are compared") ==
          (j["options"]["clock"] == "cpu"));
    return j["options"]["clock"].get<std::string>();
  };
  const std::string one_thread = "\"rematch_device\": \"cpu\",\n";
  CHECK(clock(0.5, 0.6, one_thread) == "cpu");
  CHECK(clock(1.0, 0.99, one_thread) == "real");
  // A side that sleeps has a core whenever it wants one.
  CHECK(clock(1.0, 0.5, one_thread) == "real");
  CHECK(clock(0.5, 1.0, one_thread) == "real");
  // A device, or threads that wait for each other, leave the CPU idle as well.
  CHECK(clock(0.5, 0.6, "\"rematch_device\": \"cuda\",\n") == "real");
  CHECK(clock(0.5, 0.6, "") == "real");
}

TEST_CASE("a peak that changed is told with its place") {
  const ScratchFolder folder;
  const auto side = [&](const char* name, const char* peak, const char* label) {
    FakeFile file;
    file.benchmarks = {{"a", {1}, {{"peak_bytes", peak}, {"label", label}}}};
    return argument(folder.write(name, to_text(file)));
  };
  const std::string base = side("base.json", "1000", "\"peak in the loss\"");
  const std::string same = side("same.json", "1004", "\"peak in the loss\"");
  const std::string other = side("other.json", "1004", "\"peak in the recomputation of layer 3\"");
  CHECK(contains(run_compare(base + same + " --json").out, "to 1,004 B; peak in the loss\""));
  CHECK(contains(run_compare(base + other + " --json").out,
                 "; peak in the recomputation of layer 3, before: peak in the loss\""));
}

TEST_CASE("the same change in many benchmarks of a model is one finding, and each is counted") {
  const ScratchFolder folder;
  const auto side = [&](const char* name, int more) {
    FakeFile file;
    for (const char* benchmark : {"a/plain", "a/k2", "a/k4", "a/sqrt", "b/plain", "b/k2"}) {
      const int count = 10 + static_cast<int>(file.benchmarks.size()) + more;
      file.benchmarks.push_back({benchmark, {1}, {{"allocations", std::to_string(count)}}});
    }
    return argument(folder.write(name, to_text(file)));
  };
  const std::string sides = side("base.json", 0) + side("new.json", 4);
  const auto j = nlohmann::json::parse(run_compare(sides + " --json").out);
  REQUIRE(j["findings"].size() == 3);
  CHECK(
      j["findings"][0]["text"] ==
      "allocations rose by 4 in 4 benchmarks of a: plain from 10 to 14, k2 from 11 to 15, k4 from "
      "12 to 16, and 1 more");
  CHECK(j["findings"][1]["text"] == "allocations of b/plain rose by 4 (+28.6 %), from 14 to 18");
  for (const auto& b : j["benchmarks"]) CHECK(b["counters"]["allocations"]["change"] == "rose");
}

TEST_CASE("a file of counts gives counters and no times") {
  const ScratchFolder folder;
  write_pairs(folder, 1, 12);
  FakeFile file;
  file.extra_context = "\"rematch_times\": \"no\",\n";
  file.benchmarks = {{"a", {1}, {{"peak_bytes", "1000"}}},
                     {"b", {1}, {{"peak_bytes", "1000"}}},
                     {"c", {1}, {{"peak_bytes", "1000"}}}};
  folder.write("base/counts.json", to_text(file));
  // Slow here, which says nothing.
  file.benchmarks[1].ms = {100};
  file.benchmarks[2].counters = {{"peak_bytes", "1004"}};
  folder.write("new/counts.json", to_text(file));
  const std::string sides = argument(folder.path() / "base") + argument(folder.path() / "new");
  const Outcome o = run_compare(sides + " --json");
  CHECK(o.status == 1);
  const auto j = nlohmann::json::parse(o.out);
  CHECK(j["benchmarks"][0]["verdict"] == "SAME");
  CHECK(j["benchmarks"][0]["time"]["pairs"] == 12);
  CHECK(j["benchmarks"][1]["verdict"] == "EQUAL");
  CHECK(j["benchmarks"][1]["time"]["pairs"] == 0);
  CHECK(j["benchmarks"][2]["verdict"] == "CHANGED");
  const std::string text = run_compare(sides).out;
  CHECK(contains(text, "  1 CHANGED: c\n  1 EQUAL: b\n"));
  CHECK(contains(text, "peak_bytes of c rose by 4 B"));
  // Nothing that was not timed makes a run unsure.
  fs::remove(folder.path() / "new/counts.json");
  fs::remove(folder.path() / "base/counts.json");
  file.benchmarks.pop_back();
  folder.write("base/counts.json", to_text(file));
  folder.write("new/counts.json", to_text(file));
  CHECK(run_compare(sides).status == 0);
  // A history takes the counters alone.
  const auto line = nlohmann::json::parse(
      run_compare("--history-line" + argument(folder.path() / "new/counts.json")).out);
  CHECK(line["benchmarks"]["b"].contains("peak_bytes"));
  CHECK_FALSE(line["benchmarks"]["b"].contains("real_ns"));

  file.extra_context = "\"rematch_times\": \"perhaps\",\n";
  const std::string odd = argument(folder.write("odd.json", to_text(file)));
  CHECK(contains(run_compare(odd + odd).out, "rematch_times: expected yes or no"));
}

TEST_CASE("timelines of rematch show are drawn from the command line and from result files") {
  const ScratchFolder folder;
  const std::string shown = folder.write(
      "shown.json", run_line("'" REMATCH_PROGRAM "' show --json --seed 1 --case 8").out);
  write_pairs(folder, 1, 2);
  const std::string sides = argument(folder.path() / "base") + argument(folder.path() / "new");
  const std::string page = argument(folder.path() / "page.html");
  run_compare(sides + " --html" + page + " --timelines" + argument(shown) + argument(shown));
  CHECK(contains(text_of(folder.path() / "page.html"), "Bytes over a step"));

  FakeFile file;
  file.benchmarks = {{"a", {1}, {}}};
  file.extra_context = "\"rematch_timeline\": \"named.json\",\n";
  const std::string one = folder.write("one.json", to_text(file));
  folder.write("named.json", "{\"cifar/sqrt\": " + text_of(shown) + "}");
  run_compare(argument(one) + argument(one) + " --html" + page);
  CHECK(contains(text_of(folder.path() / "page.html"), "cifar/sqrt"));
  // As rematch-bench writes them.
  folder.write("named.json", R"({"deep64/k2": {"timeline_fields": ["live", "phase"],
    "timeline": [[10, "forward"], [1234567, "backward"]]}})");
  run_compare(argument(one) + argument(one) + " --html" + page);
  CHECK(contains(text_of(folder.path() / "page.html"), "deep64/k2"));
  CHECK(contains(text_of(folder.path() / "page.html"), "peak 1,234,567 B"));
  folder.write("named.json", R"({"a": {"timeline_fields": ["live"], "timeline": [[10]]}})");
  const Outcome o = run_compare(argument(one) + argument(one) + " --html" + page);
  CHECK(o.status == 2);
  CHECK(contains(o.out, "a.timeline_fields: expected a field \"phase\""));
}

TEST_CASE("a history is judged, and its last line comes from result files") {
  const ScratchFolder folder;
  const std::string history = folder.write("history.jsonl", example_history_text());
  const Outcome o = run_compare("--history" + argument(history));
  CHECK(o.status == 1);
  CHECK(contains(o.out, "deep64/plain drifts: since commit"));
  const std::string since = " --since " + example_history()[36].commit.substr(0, 9);
  CHECK(run_compare("--history" + argument(history) + since).status == 0);

  write_pairs(folder, 1, 3);
  const Outcome line = run_compare("--history-line" + argument(folder.path() / "base"));
  CHECK(line.status == 0);
  const auto j = nlohmann::json::parse(line.out);
  CHECK(j["commit"] == std::string(40, '1'));
  CHECK(j["benchmarks"]["a"]["peak_bytes"] == 1000);
}

TEST_CASE("a full disk is an error, a reader that went away is none") {
  const ScratchFolder folder;
  write_pairs(folder, 1, 12);
  const std::string sides = argument(folder.path() / "base") + argument(folder.path() / "new");
  CHECK(run_line("'" REMATCH_COMPARE "'" + sides + " > /dev/full").status == 2);
}

}  // namespace rematch::compare
