#include "properties/hunt/corpus.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <thread>

#include "properties/generate/mix.h"
#include "properties/hunt/gather.h"
#include "properties/hunt/registry.h"

namespace rematch {
namespace {

Corpus wide_corpus(std::uint64_t seed, std::uint64_t count, int jobs) {
  return corpus_of(
      count, [&](std::uint64_t i) { return generate_case(Mix::wide, seed, i); }, jobs);
}

std::vector<std::uint64_t> indices(const Corpus& corpus) {
  std::vector<std::uint64_t> result;
  for (const CorpusCase& c : corpus) result.push_back(c.index);
  return result;
}

}  // namespace

TEST_CASE("a pair is two features that one case has, or one alone") {
  const FeatureSet two{Feature::dropout, Feature::reentrant};
  PairSet pairs;
  CHECK(pairs.missing(two) == 4);
  pairs.add(two);
  CHECK(pairs.missing(two) == 0);
  CHECK(pairs.size() == 3);
  // Each of them is known, but not that they meet.
  pairs.add({Feature::adam});
  CHECK(pairs.missing({Feature::adam, Feature::dropout}) == 2);
  CHECK(pairs.size() == 4);
}

TEST_CASE("a corpus has all pairs of the hunt's cases, with few of them") {
  const std::uint64_t seed = GENERATE(201, 202);
  const Corpus corpus = wide_corpus(seed, 500, 1);
  CHECK(corpus.size() < 200);
  const PairSet pairs = pairs_of(corpus);
  for (std::uint64_t i = 0; i < 500; ++i) {
    const Case c = generate_case(Mix::wide, seed, i);
    REQUIRE(pairs.missing(features_of(c, validate(c))) == 0);
  }
  // Each adds something to those before it, most first, and is the case of its number.
  PairSet before;
  std::size_t most = SIZE_MAX;
  for (const CorpusCase& c : corpus) {
    CHECK(c.c == generate_case(Mix::wide, seed, c.index));
    const std::size_t gain = before.missing(c.features);
    CHECK(gain > 0);
    CHECK(gain <= most);
    most = gain;
    before.add(c.features);
  }
}

TEST_CASE("a corpus is the same for any number of jobs") {
  const std::vector<std::uint64_t> one = indices(wide_corpus(203, 2000, 1));
  CHECK_FALSE(one.empty());
  CHECK(one == indices(wide_corpus(203, 2000, 3)));
}

TEST_CASE("of engines, only the right one keeps all laws in the corpus of a hunt") {
  const int jobs = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  const Corpus corpus = wide_corpus(7, kCasesForCorpus, jobs);
  CHECK(corpus.size() < 100);
  CHECK(pairs_of(corpus).size() >= 5900);
  Workspace workspace;
  const auto keeps_all = [&](std::string_view name) {
    const std::unique_ptr<Subject> subject = make_subject(name);
    return std::all_of(corpus.begin(), corpus.end(), [&](const CorpusCase& c) {
      return judge_case(c.c, *subject, workspace).kept();
    });
  };
  for (const std::string& name : subject_names()) {
    if (!name.starts_with("engine")) continue;
    INFO(name);
    CHECK(keeps_all(name) == (name == "engine"));
  }
}

}  // namespace rematch
