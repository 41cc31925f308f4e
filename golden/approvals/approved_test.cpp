// A difference from an approved file is always seen, and described.
#include "golden/approvals/testing/approved.h"
#include "properties/testing/shell.h"

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <fstream>

namespace rematch::golden {
namespace {

using namespace testing;

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

/// A folder with goldens, as golden/ is one.
class Goldens {
 public:
  Goldens() {
    fs::create_directory(path());
    fs::copy_file(REMATCH_SOURCE_DIR "/golden/approve", path() / "approve");
  }
  fs::path path() const { return folder_.path() / "golden"; }
  std::string compare(const Json& entries) const {
    return difference_from_approved(path().string(), "bytes", entries);
  }
  Outcome approve(const std::string& arguments = "") const {
    return run_line("golden/approve " + arguments, folder_.path());
  }

 private:
  ScratchFolder folder_;
};

}  // namespace

TEST_CASE("every kind of difference is told with its place and both values") {
  const Goldens goldens;
  goldens.compare(example());
  CHECK(goldens.approve().status == 0);
  Json now = example();
  now["cifar/sqrt/float32/cpu"]["layer_runs"] = 28;
  now["cifar/sqrt/float32/cpu"]["peak"]["bytes"].erase("parameters");
  now["cifar/sqrt/float32/cpu"]["peak"]["place"] = "backward of layer 2 (conv2d)";
  now["cifar/every/float32/cpu"] = 1;
  now.erase("cifar/plain/float32/cpu");
  const std::string words = goldens.compare(now);
  for (const char* line : {
           "cifar/sqrt/float32/cpu: layer_runs: was 29, is 28\n",
           "cifar/sqrt/float32/cpu: peak: bytes: parameters is gone, was 2000\n",
           "cifar/sqrt/float32/cpu: peak: place: was \"recomputation of layer 3 (relu)\", is "
           "\"backward of layer 2 (conv2d)\"\n",
           "cifar/every/float32/cpu is new: 1\n",
           "cifar/plain/float32/cpu is gone, was {",
       }) {
    CHECK(contains(words, line));
  }
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
  CHECK(contains(words, "cifar/sqrt/float32/cpu: layer_runs: was 29, is 30"));
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
