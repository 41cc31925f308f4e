#include "properties/hunt/tally_json.h"

#include <catch2/catch_test_macros.hpp>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "properties/hunt/hunt_options.h"
#include "properties/hunt/registry.h"
#include "properties/hunt/worker.h"
#include "properties/testing/outcome.h"

namespace rematch {
namespace {

Tally judged(Worker& worker, CaseRange cases) {
  Tally tally;
  worker.judge(
      cases, [] { return true; }, tally);
  return tally;
}

/// A hunt for a fault that the profile knows in cases without dropout.
HuntOptions keeping_going() {
  HuntOptions options;
  options.keep_going = true;
  options.make_subject = [] { return make_subject("engine:S1"); };
  KnownDivergence known;
  known.id = "known";
  known.laws = {"buffers-after-step", "reevaluation", "outputs"};
  known.unless.insert(*feature_named("dropout"));
  options.profile = Profile({known});
  return options;
}

Tally again(const Tally& tally) { return tally_from_json(parse_tally_text(to_json(tally))); }

void replace(std::string& text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  text.replace(at, from.size(), to);
}

}  // namespace

TEST_CASE("a tally written as JSON and read again is the same, and so is what it adds up to") {
  const HuntOptions options = keeping_going();
  const auto worker = local_worker(options);
  const Tally all = judged(*worker, {0, 300});
  REQUIRE(!all.violating.empty());
  REQUIRE(!all.known_cases.empty());
  CHECK(to_json(again(all)) == to_json(all));

  Tally sum;
  for (std::uint64_t begin = 0; begin < 300; begin += 60) {
    sum.add(again(judged(*worker, {begin, begin + 60})), 1000);
  }
  CHECK(to_json(sum) == to_json(all));
}

TEST_CASE("cases that could not be run are counted by reason, in sums and in JSON, too") {
  Tally tally;
  tally.not_judged = 3;
  tally.why_not_judged = {{"too \"large\"\n", 2}, {"no such layer", 1}};
  Tally sum = again(tally);
  CHECK(sum.why_not_judged == tally.why_not_judged);
  Tally other;
  other.not_judged = 5;
  other.why_not_judged = {{"no such layer", 5}};
  sum.add(other, 1);
  CHECK(sum.not_judged == 8);
  CHECK(sum.why_not_judged == Reasons{{"too \"large\"\n", 2}, {"no such layer", 6}});
}

TEST_CASE("of the violating cases of each law a sum keeps the first, and counts all") {
  const HuntOptions options = keeping_going();
  const auto worker = local_worker(options);
  const Tally all = judged(*worker, {0, 300});
  Tally halves;
  halves.add(judged(*worker, {0, 150}), 2);
  Tally rest;
  rest.add(judged(*worker, {150, 300}), 2);
  halves.add(rest, 2);
  CHECK(halves.first_violated == all.first_violated);
  CHECK(halves.violating.size() < all.violating.size());
  CHECK(halves.violating.front().index == all.violating.front().index);
}

TEST_CASE("a violation keeps every digit of its distance, and a text whatever is in it") {
  ViolatingCase violating{7, generate_case(Mix::wide, 1, 7), {}};
  for (const double distance : {0.1, 1e-300, std::numeric_limits<double>::infinity()}) {
    violating.violation = {laws()[0].name, "a \"place\"\n", "\xc3\xa9", "\x01", distance};
    const ViolatingCase read = violating_from_json(parse_tally_text(to_json(violating)));
    CHECK(read.violation.distance == violating.violation.distance);
    CHECK(read.violation.place == violating.violation.place);
    CHECK(read.violation.got == violating.violation.got);
    CHECK(read.violation.law == violating.violation.law);
    CHECK(read.c == violating.c);
  }
  // Bytes that are no UTF-8 are replaced.
  violating.violation.got = "\xff";
  CHECK_NOTHROW(violating_from_json(parse_tally_text(to_json(violating))));
}

TEST_CASE("text that is no tally is refused with the place") {
  const HuntOptions options = keeping_going();
  const std::string good = to_json(judged(*local_worker(options), {0, 40}));
  const auto complaint = [](const std::string& text) {
    return testing::message_of([&] { (void)tally_from_json(parse_tally_text(text)); });
  };
  REQUIRE(complaint(good) == "none");
  const auto changed = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    replace(text, from, to);
    return complaint(text);
  };
  CHECK(changed("\"survives\"", "\"revives\"") ==
        "[tally] tally.verdicts.revives: expected a known name, got \"revives\"");
  CHECK(changed("\"cases\":40", "\"cases\":-1").starts_with("[tally] tally.cases: expected"));
  CHECK(changed("\"cases\":40", "\"more\":0,\"cases\":40").find("unknown field") !=
        std::string::npos);
  CHECK(changed("\"record_hash\":\"", "\"record_hash\":\"0")
            .starts_with("[tally] tally.record_hash: expected 16 hexadecimal digits"));
  CHECK(complaint(good.substr(0, good.size() / 2)).starts_with("[tally] text: expected JSON"));
}

}  // namespace rematch
