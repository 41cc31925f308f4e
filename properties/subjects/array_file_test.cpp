#include "properties/subjects/array_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "properties/case/json.h"
#include "properties/record/base64.h"
#include "properties/subjects/engine_subject.h"
#include "properties/subjects/process_subject.h"
#include "properties/subjects/run_message.h"

namespace rematch {
namespace {

using Json = nlohmann::json;

/// Inputs of more than 1 MiB, and parameters of less.
Case large_case() {
  return case_from_json(R"({"format": 1, "seed": 3, "input": [2, 300000],
      "layers": [{"kind": "linear", "features": 1}, {"kind": "tanh"}],
      "plan": {"segments": [{"begin": 0, "end": 2, "variant": "non_reentrant"}]},
      "protocol": {"microbatches": 2}})");
}

std::vector<std::byte> bytes_in_file(const Json& array, std::size_t size) {
  std::vector<std::byte> bytes(size);
  std::ifstream in(array.at("file").get<std::string>(), std::ios::binary);
  in.seekg(array.at("offset").get<std::streamoff>());
  in.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(size));
  REQUIRE(in.good());
  return bytes;
}

}  // namespace

TEST_CASE("a subject is told its own options, and not the harness's") {
  Case c = case_from_json(
      R"({"format": 1, "input": [2, 3], "layers": [{"kind": "relu"}], "options": {"mode": "fast"}})");
  c.options[kRepeat] = "yes";
  const Json run = Json::parse(run_message(1, c, validate(c), {}, false, nullptr))["run"];
  CHECK(run["case"]["options"] == Json{{"mode", "fast"}});
}

TEST_CASE("large arrays of a request lie in a file, bit by bit as they would be in line") {
  const Case c = large_case();
  const Geometry geometry = validate(c);
  ArrayFile files;
  const Json in_line = Json::parse(run_message(1, c, geometry, {}, false, nullptr))["run"];
  const Json by_file = Json::parse(run_message(1, c, geometry, {}, false, &files))["run"];
  CHECK(in_line["model"] == by_file["model"]);
  for (const char* list : {"parameters", "inputs", "targets"}) {
    INFO(list);
    REQUIRE(in_line["arrays"][list].size() == by_file["arrays"][list].size());
    for (std::size_t i = 0; i < in_line["arrays"][list].size(); ++i) {
      const Json& expected = in_line["arrays"][list][i];
      const Json& got = by_file["arrays"][list][i];
      const auto bytes = from_base64(expected["data"].get_ref<const std::string&>());
      REQUIRE(bytes);
      CHECK(got.contains("file") == (bytes->size() >= kLargeArray));
      CHECK(got["shape"] == expected["shape"]);
      if (!got.contains("file")) continue;
      CHECK(bytes_in_file(got, bytes->size()) == *bytes);
    }
  }
  CHECK(by_file["arrays"]["parameters"][0].contains("file"));
  CHECK(by_file["arrays"]["parameters"][1].contains("data"));
}

TEST_CASE("the file cannot be changed, and it is gone with its owner") {
  std::string path;
  {
    ArrayFile file;
    const std::vector<std::byte> bytes(5, std::byte{7});
    CHECK(file.append(bytes) == 0);
    CHECK(file.append(bytes) == 64);
    file.seal();
    path = file.path();
    const int fd = open(path.c_str(), O_RDWR);
    REQUIRE(fd >= 0);
    CHECK(write(fd, "x", 1) < 0);
    CHECK(ftruncate(fd, 0) < 0);
    close(fd);
  }
  CHECK(open(path.c_str(), O_RDONLY) < 0);
}

TEST_CASE("a subject that reads files is given the case that others are given in line") {
  // Answers with the number of its requests that name a file.
  const auto command = [](const char* files) {
    return std::string(
               "read -r line <&3; printf '%s\\n' '{\"hello\":{\"protocol\":1,\"name\":\"x\",") +
           "\"implements\":[],\"observes\":[],\"files\":" + files +
           "}}' >&4; while read -r line <&3; do n=0; "
           "case $line in *'\"file\":\"/proc/'*) n=1;; esac; id=${line#*'\"id\":'}; "
           "printf '{\"answer\":{\"id\":%s,\"record\":{\"format\":1,\"peak_bytes\":%s}}}\\n' "
           "\"${id%%,*}\" $n >&4; done";
  };
  const Case c = large_case();
  Record record;
  ProcessSubject reads(command("true"));
  reads.run(c, validate(c), {}, record);
  CHECK(record.peak_bytes == 1);
  ProcessSubject reads_not(command("false"));
  reads_not.run(c, validate(c), {}, record);
  CHECK(record.peak_bytes == 0);
  EngineSubject engine;
  ProcessSubject served(REMATCH_PROGRAM " serve");
  Record expected;
  engine.run(c, validate(c), {}, expected);
  served.run(c, validate(c), {}, record);
  CHECK(record.hash() == expected.hash());
}

}  // namespace rematch
