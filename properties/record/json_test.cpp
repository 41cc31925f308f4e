#include "properties/record/json.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "properties/case/geometry.h"
#include "properties/generate/mix.h"
#include "properties/record/base64.h"
#include "properties/subjects/engine_subject.h"

namespace rematch {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

Record read_record(const std::string& text) {
  Record record;
  record_from_json(text, record);
  return record;
}

void rejects_record(const std::string& text, const std::string& words) {
  INFO(text.substr(0, 200));
  Record record;
  CHECK_THROWS_MATCHES(record_from_json(text, record), std::invalid_argument,
                       MessageMatches(ContainsSubstring("[record]") && ContainsSubstring(words)));
}

}  // namespace

TEST_CASE("a record survives the way to JSON and back, whatever the engine writes into it") {
  EngineSubject engine;
  for (std::uint64_t i = 0; i < 400; ++i) {
    const Case c = generate_case(Mix::wide, 13, i);
    Record record;
    RunRequest request;
    request.checkpointed = i % 2 == 0;
    request.layer_values = true;
    request.timeline = i % 5 == 0;
    request.compare_layers = i % 50 == 0;
    engine.run(c, validate(c), request, record);
    const std::string text = to_json(record);
    const Record again = read_record(text);
    REQUIRE(again.hash() == record.hash());
    REQUIRE(again.data == record.data);
    // Fields that the hash leaves out are in the text.
    REQUIRE(to_json(again) == text);
    REQUIRE(again.values.size() == record.values.size());
    REQUIRE(again.timeline.size() == record.timeline.size());
    REQUIRE(again.agreements.size() == record.agreements.size());
  }
}

TEST_CASE("an empty record is a short text, and back") {
  CHECK(to_json(Record()) == R"({"format":1})");
  CHECK(read_record(R"({"format":1})").hash() == Record().hash());
}

TEST_CASE("numbers that other readers would round survive as text") {
  Record record;
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
  record.draws.push_back({0, 1, 2, 3, 4, kMost, 6, (std::uint64_t{1} << 53) + 1});
  const std::string text = to_json(record);
  CHECK(text.find("\"offset\":\"0xffffffffffffffff\"") != std::string::npos);
  CHECK(text.find("\"hash\":\"0x20000000000001\"") != std::string::npos);
  const Record again = read_record(text);
  CHECK(again.draws[0].offset == kMost);
  CHECK(again.draws[0].hash == (std::uint64_t{1} << 53) + 1);
  CHECK(read_record(R"({"format":1,"draws":[{"hash":18446744073709551615}]})").draws[0].hash ==
        kMost);
}

TEST_CASE("numbers that are none survive") {
  Record record;
  record.agreements.push_back({1, "output 0", 2, std::nan(""), HUGE_VAL, -HUGE_VAL, false});
  const Agreement again = read_record(to_json(record)).agreements[0];
  CHECK(std::isnan(again.host));
  CHECK(again.device == HUGE_VAL);
  CHECK(again.bound == -HUGE_VAL);
}

TEST_CASE("text that no error should hold is written readably") {
  Record record;
  record.error = RecordedError{"error", "bytes \xff\xfe and \"quotes\"\n"};
  CHECK(read_record(to_json(record)).error->message.find("\"quotes\"\n") != std::string::npos);
}

TEST_CASE("a text that is no record is refused with the place and what came") {
  rejects_record("", "JSON");
  rejects_record("[]", "an object");
  rejects_record("{}", "format: expected a value");
  rejects_record(R"({"format":2})", "expected 1, got 2");
  rejects_record(R"({"format":1,"colour":1})", "unknown field \"colour\"");
  rejects_record(R"({"format":1,"format":1})", "each field once");
  rejects_record(R"({"format":1,"draws":{}})", "draws: expected an array");
  rejects_record(R"({"format":1,"draws":[{"elements":2.5}]})",
                 "draws[0].elements: expected an integer");
  rejects_record(R"({"format":1,"draws":[{"layer":-2}]})",
                 "draws[0].layer: expected an integer in 0..");
  rejects_record(R"({"format":1,"draws":[{"layer":99999999}]})", "draws[0].layer");
  rejects_record(R"({"format":1,"draws":[{"hash":"0xg"}]})", "hex digits");
  rejects_record(R"({"format":1,"draws":[{"hash":"0x11112222333344445"}]})", "hex digits");
  rejects_record(R"({"format":1,"draws":[{"hash":-1}]})", "hash");
  rejects_record(R"({"format":1,"live":[{"event":"moon"}]})", "one of layer, node");
  rejects_record(R"({"format":1,"observations":[{"dtype":"float16"}]})", "one of float32");
  rejects_record(R"({"format":1,"observations":[{"shape":[2],"data":"AAAA"}]})", "8 bytes, got 3");
  rejects_record(R"({"format":1,"observations":[{"shape":[2],"data":"AAA"}]})", "base64");
  rejects_record(R"({"format":1,"observations":[{"shape":[2],"data":"AAA\u0000"}]})", "base64");
  rejects_record(R"({"format":1,"observations":[{"shape":[-1]}]})", "extents from 0");
  rejects_record(R"({"format":1,"observations":[{"shape":[1099511627776,1099511627776]}]})",
                 "extents");
  rejects_record(R"({"format":1,"observations":[{"shape":[1,1,1,1,1,1,1,1,1]}]})", "at most 8");
  rejects_record(R"({"format":1,"observations":[{"present":false,"data":"AAAA"}]})",
                 "0 bytes, got 3");
  rejects_record(R"({"format":1,"agreements":[{"host":"5"}]})", "a number");
  rejects_record(R"({"format":1,"error":{"kind":3}})", "error.kind: expected text");
  std::string deep = R"({"format":1,"draws":)";
  for (int i = 0; i < 50; ++i) deep += '[';
  rejects_record(deep, "levels of nesting");
}

TEST_CASE("base64 is that of the standard, and nothing else is read") {
  const auto encode = [](std::string_view text) {
    std::string out;
    append_base64(std::as_bytes(std::span(text)), out);
    return out;
  };
  // RFC 4648, section 10.
  CHECK(encode("").empty());
  CHECK(encode("f") == "Zg==");
  CHECK(encode("fo") == "Zm8=");
  CHECK(encode("foo") == "Zm9v");
  CHECK(encode("foobar") == "Zm9vYmFy");
  for (const char* text : {"", "Zg==", "Zm8=", "Zm9v", "Zm9vYmE=", "////"}) {
    const auto bytes = from_base64(text);
    REQUIRE(bytes);
    std::string again;
    append_base64(*bytes, again);
    CHECK(again == text);
  }
  for (const char* bad : {"Z", "Zg", "Zg=", "Zh==", "Zm9=", "Zg==Zg==", "Z===", "Zm 8", "=AAA"}) {
    INFO(bad);
    CHECK_FALSE(from_base64(bad));
  }
}

}  // namespace rematch
