// A difference from an approved file is always seen, and described.
#include "golden/approvals/testing/approved.h"
#include "properties/testing/shell.h"

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <fstream>

namespace rematch::golden {
namespace {

using testing::contains;
using testing::Outcome;
using testing::run_line;
using testing::ScratchFolder;
using testing::text_of;

namespace fs = std::filesystem;

Json example() {
  return Json::parse(R"json({
    "cifar/sqrt/float32/cpu": {"peak_bytes": 68611412, "layer_runs": 29,
      "peak": {"bytes": {"parameters": 2000, "temporaries": 68609412}, "allocated": 8,
               "for": "temporaries", "place": "recomputation of layer 3 (relu)"}},
    "cifar/plain/float32/cpu": {"peak_bytes": 70, "layer_runs": 17,
      "peak": {"bytes": {"parameters": 70}, "allocated": 0,
               "for": "temporaries", "place": "beginning of the step"}}})json");
}

Json& peak(Json& entries) { return entries["cifar/sqrt/float32/cpu"]["peak"]; }

/// A folder with goldens, as golden/ is one.
class Goldens {
 public:
  Goldens() {
    fs::create_directory(path());
    fs::copy_file(REMATCH_SOURCE_DIR "/golden/approve", path() / "approve");
  }
  fs::path path() const { return folder_.path() / "golden"; }
  std::string compare(const Json& entries) const {
    return difference_from_approved(path().string(), "bytes", entries, count_differences);
  }
  Outcome approve(const std::string& arguments = "") const {
    return run_line("golden/approve " + arguments, folder_.path());
  }

 private:
  ScratchFolder folder_;
};

}  // namespace

TEST_CASE("a peak that rose by four bytes is told with what the bytes are for") {
  Json now = example();
  now["cifar/sqrt/float32/cpu"]["peak_bytes"] = 68611416;
  peak(now)["bytes"]["temporaries"] = 68609416;
  const std::vector<std::string> lines = count_differences(example(), now);
  REQUIRE(lines.size() == 1);
  CHECK(lines[0] ==
        "peak_bytes of cifar/sqrt/float32/cpu rose by 4 B, from 68,611,412 B to 68,611,416 B; "
        "temporaries in it rose by 4 B; reached by 8 B for temporaries in the recomputation of "
        "layer 3 "
        "(relu)");
}

TEST_CASE("every kind of difference has its sentence") {
  Json now = example();
  now["cifar/sqrt/float32/cpu"]["layer_runs"] = 28;
  now["cifar/every/float32/cpu"] = now["cifar/plain/float32/cpu"];
  now.erase("cifar/plain/float32/cpu");
  CHECK(count_differences(example(), now) ==
        std::vector<std::string>{"layer_runs of cifar/sqrt/float32/cpu fell by 1, from 29 to 28",
                                 "cifar/every/float32/cpu is new",
                                 "cifar/plain/float32/cpu is gone"});

  now = example();
  peak(now)["bytes"] = Json{{"parameters", 1000}, {"saved", 68610412}};
  peak(now)["place"] = "backward of layer 2 (conv2d)";
  CHECK(
      count_differences(example(), now) ==
      std::vector<std::string>{
          "the peak of cifar/sqrt/float32/cpu is as high, but of something else; parameters in it "
          "fell by 1,000 B; saved in it rose by 68,610,412 B; temporaries in it fell by "
          "68,609,412 B; reached by 8 B for temporaries in the backward of layer 2 (conv2d), "
          "before in the recomputation of layer 3 (relu)"});
  CHECK(count_differences(example(), example()).empty());
  CHECK(entry_differences({{"a", "x"}, {"b", 1}}, {{"a", "y"}, {"b", 1}}) ==
        std::vector<std::string>{"a: was \"x\", is \"y\""});
}

TEST_CASE("what differs is left beside the approved file until a person approves it") {
  const Goldens goldens;
  CHECK(contains(goldens.compare(example()), "there is no approved file yet"));
  CHECK(goldens.approve().status == 0);
  const std::string approved = text_of(goldens.path() / "bytes.json");
  CHECK(contains(approved, "\"format\": 1"));
  CHECK(contains(approved, "golden/approve"));
  CHECK(goldens.compare(example()).empty());

  Json now = example();
  now["cifar/sqrt/float32/cpu"]["layer_runs"] = 30;
  const std::string words = goldens.compare(now);
  CHECK(contains(words, "layer_runs of cifar/sqrt/float32/cpu rose by 1, from 29 to 30"));
  CHECK(contains(words, "bytes.received.json"));
  CHECK(text_of(goldens.path() / "bytes.json") == approved);
  const Outcome listed = goldens.approve("--list");
  CHECK(listed.status == 1);
  CHECK(contains(listed.out, "bytes.received.json"));
  CHECK(text_of(goldens.path() / "bytes.json") == approved);

  // An entry that is right again leaves nothing to approve.
  CHECK(goldens.compare(example()).empty());
  CHECK(goldens.approve("--list").status == 0);

  goldens.compare(now);
  CHECK(contains(goldens.approve().out, "golden/bytes.json"));
  CHECK(goldens.compare(now).empty());
  CHECK(goldens.approve("--all").status == 2);
}

TEST_CASE("an approved file of another format is refused") {
  const Goldens goldens;
  std::ofstream(goldens.path() / "bytes.json") << R"({"format": 2, "entries": {}})";
  CHECK_THROWS_AS(goldens.compare(example()), std::runtime_error);
}

}  // namespace rematch::golden
