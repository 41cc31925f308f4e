// Structures: what a hunt has tried, beside the numbers that it tried it with.
#include "properties/hunt/structures.h"

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "properties/case/json.h"
#include "properties/generate/mix.h"
#include "properties/record/mixed.h"

namespace rematch {
namespace {

/// The case without its numbers, written out.
std::string text_of(Case c) {
  vary(c, {});
  c.options.erase(kPromise);
  c.options.erase(kRepeat);
  return to_json(c);
}

}  // namespace

TEST_CASE("cases have the same structure if they differ in nothing but what no model knows") {
  std::map<std::string, std::uint64_t> by_text;
  std::set<std::uint64_t> hashes;
  Scope scope;
  scope.options = {
      {"mode", {"default", "fast"}, 0.5}, {kPromise, {"none", "nested"}, 0.5}, repeat_option()};
  scope.cases_per_shape = 4;
  for (std::uint64_t i = 0; i < 4000; ++i) {
    const Case c = generate_case(i % 2 == 0 ? Mix::wide : Mix::standard, 17, i / 2, scope);
    const std::uint64_t structure = structure_of(c);
    const auto [found, is_new] = by_text.emplace(text_of(c), structure);
    INFO(to_json(c));
    CHECK(found->second == structure);
    CHECK(hashes.insert(structure).second == is_new);
  }
  CHECK(by_text.size() > 1000);
  CHECK(by_text.size() < 3000);
}

TEST_CASE("structures are counted exactly while they are few, and by law") {
  Structures structures;
  LawSet first;
  first.set(0);
  LawSet third;
  third.set(2);
  for (std::uint64_t i = 0; i < 1000; ++i) structures.add(mixed(i % 300), first);
  for (std::uint64_t i = 200; i < 260; ++i) structures.add(mixed(i), third);
  CHECK(structures.is_exact());
  CHECK(structures.count() == 300);
  CHECK(structures.judged_by(0) == 300);
  CHECK(structures.judged_by(1) == 0);
  CHECK(structures.judged_by(2) == 60);
}

TEST_CASE("of many structures the number is estimated, in whatever order and parts they come") {
  constexpr std::uint64_t kCount = 200'000;
  LawSet every;
  every.set(1);
  LawSet fourth;
  fourth.set(3);
  const auto add = [&](Structures& to, std::uint64_t i) {
    to.add(mixed(i), i % 4 == 0 ? every | fourth : every);
  };
  Structures one;
  std::vector<Structures> parts(3);
  for (std::uint64_t i = 0; i < kCount; ++i) {
    add(one, i);
    add(parts[i % 3], kCount - 1 - i);
  }
  Structures sum;
  for (const Structures& part : parts) sum.add(part);
  CHECK(sum.kept() == one.kept());
  CHECK_FALSE(one.is_exact());
  CHECK(one.kept().size() == Structures::kMost);
  // Four standard errors of 1.6 %; the hashes are fixed, so this holds or does not, each time.
  const auto near = [](std::uint64_t got, double expected) {
    return std::abs(static_cast<double>(got) / expected - 1) < 0.064;
  };
  CHECK(near(one.count(), kCount));
  CHECK(one.judged_by(1) == one.count());
  // A quarter of a sample of 4,096 has a standard error of 2.7 % in itself.
  CHECK(std::abs(static_cast<double>(one.judged_by(3)) / (kCount / 4.0) - 1) < 0.13);
}

}  // namespace rematch
