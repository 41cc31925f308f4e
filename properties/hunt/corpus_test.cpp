#include "properties/hunt/corpus.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <set>

#include "properties/case/json.h"
#include "properties/forecast/testing/small_cases.h"
#include "properties/generate/mix.h"
#include "properties/generate/shrink.h"
#include "properties/hunt/gather.h"
#include "properties/hunt/registry.h"
#include "properties/testing/shell.h"

namespace rematch {
namespace {

namespace fs = std::filesystem;
using testing::ScratchFolder;

Case wide(std::uint64_t seed, std::uint64_t index) { return generate_case(Mix::wide, seed, index); }

/// Cases that reach pairs, and every third time one that broke a subject.
Corpus random_corpus(std::uint64_t seed, std::uint64_t count) {
  Corpus corpus;
  for (std::uint64_t i = 0; i < count; ++i) {
    const Case c = wide(seed, i);
    corpus.push_back(i % 3 == 2 ? broken_case(c, i % 2 == 0 ? "outputs" : "losses")
                                : reaching_case(c));
  }
  return corpus;
}

Corpus merged(Corpus a, const Corpus& b) {
  a.insert(a.end(), b.begin(), b.end());
  return minimised(a);
}

std::vector<std::string> names(const Corpus& corpus) {
  std::vector<std::string> names;
  for (const CorpusCase& c : corpus) names.push_back(c.name);
  return names;
}

PairSet pairs_of_range(std::uint64_t seed, std::uint64_t count) {
  return pairs_of(random_corpus(seed, count));
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

TEST_CASE("what a range of cases adds reaches all that the range reaches, with few of them") {
  const std::uint64_t seed = GENERATE(201, 202);
  const PairSet all = pairs_of_range(seed, 500);
  const auto generate = [&](std::uint64_t i) { return wide(seed, i); };
  const Corpus added = reaching_more({}, 500, generate, 1);
  CHECK(pairs_of(added).size() == all.size());
  CHECK(pairs_of(added).contains_all(all));
  CHECK(added.size() < 200);
  // Each adds something to those before it, most first.
  PairSet before;
  std::size_t most = SIZE_MAX;
  for (const CorpusCase& c : added) {
    const std::size_t gain = before.missing(c.features);
    CHECK(gain > 0);
    CHECK(gain <= most);
    most = gain;
    before.add(c.features);
  }
  CHECK(reaching_more(all, 500, generate, 1).empty());
}

TEST_CASE("what a range of cases adds is the same for any number of jobs") {
  const auto generate = [&](std::uint64_t i) { return wide(203, i % 600); };
  PairSet known = pairs_of_range(204, 20);
  const std::vector<std::string> one = names(reaching_more(known, 20000, generate, 1));
  CHECK_FALSE(one.empty());
  CHECK(one == names(reaching_more(known, 20000, generate, 3)));
}

TEST_CASE(
    "corpora merge in any order and grouping to the same, and a second time changes nothing") {
  const Corpus a = random_corpus(205, 150);
  const Corpus b = random_corpus(206, 150);
  // Some cases are in both.
  const Corpus c = merged(random_corpus(205, 60), random_corpus(207, 60));
  const std::vector<std::string> all = names(merged(merged(a, b), c));
  CHECK(all == names(merged(a, merged(b, c))));
  CHECK(all == names(merged(merged(c, b), a)));
  CHECK(all == names(merged(merged(merged(a, b), c), b)));
}

TEST_CASE("no subject loses a pair by a merge") {
  Corpus corpus;
  // Shrunk a little, so that many are small and some have what others have.
  for (std::uint64_t i = 0; i < 60; ++i) {
    Case c = wide(208, i);
    for (int cuts = 0; cuts < 6; ++cuts) {
      corpus.push_back(reaching_case(c));
      std::vector<Case> simpler = shrink_candidates(c);
      if (simpler.empty()) break;
      c = simpler[i % simpler.size()];
    }
  }
  const Corpus kept = minimised(corpus);
  CHECK(kept.size() < corpus.size());
  for (const CorpusCase& lacks : corpus) {
    // A subject that implements just what this case needs.
    const Scope scope(lacks.features);
    REQUIRE(pairs_of(within(kept, scope)).contains_all(pairs_of(within(corpus, scope))));
  }
}

TEST_CASE("of two cases with equal features the simpler stays, and of each law one that broke it") {
  Case large = testing::tanh_chain(3);
  Case small = testing::tanh_chain(2);
  REQUIRE(reaching_case(large).features == reaching_case(small).features);
  CHECK(names(minimised({reaching_case(large), reaching_case(small)})) ==
        names({reaching_case(small)}));
  const Corpus broken = minimised({broken_case(large, "outputs"), broken_case(small, "losses"),
                                   broken_case(small, "outputs"), reaching_case(large)});
  std::vector<std::string> expected =
      names({broken_case(small, "outputs"), broken_case(small, "losses"), reaching_case(large)});
  std::vector<std::string> got = names(broken);
  std::sort(got.begin(), got.end());
  std::sort(expected.begin(), expected.end());
  CHECK(got == expected);
}

TEST_CASE("a subject runs what broke one, and a cover of what it implements") {
  Corpus corpus = random_corpus(209, 300);
  corpus.push_back(
      {"mine.json", testing::tanh_chain(2), reaching_case(testing::tanh_chain(2)).features});
  const Scope scope(FeatureSet::all().without({Feature::reentrant, Feature::custom}));
  const Corpus implemented = within(corpus, scope);
  const Corpus run = to_run(implemented);
  CHECK(pairs_of(run).contains_all(pairs_of(implemented)));
  CHECK(run.size() < implemented.size());
  for (const CorpusCase& c : run) CHECK_FALSE(c.features.contains(Feature::reentrant));
  const auto others = [](const Corpus& cases) {
    return std::count_if(cases.begin(), cases.end(),
                         [](const CorpusCase& c) { return !c.name.starts_with("reach-"); });
  };
  CHECK(others(run) == others(implemented));
}

TEST_CASE("a corpus is read back equal, and a file that is damaged is named") {
  const ScratchFolder folder;
  const Corpus corpus = minimised(random_corpus(210, 30));
  CHECK(save_corpus(corpus, folder.path()) == corpus.size());
  CHECK(save_corpus(corpus, folder.path()) == 0);
  folder.write("reach-0123456789abcdef.json", "{\"format\": 99}");
  folder.write("notes.txt", "not a case");
  std::vector<std::string> unreadable;
  const Corpus back = load_corpus(folder.path(), unreadable);
  REQUIRE(unreadable.size() == 1);
  CHECK(testing::contains(unreadable[0], "reach-0123456789abcdef.json"));
  CHECK(testing::contains(unreadable[0], "99"));
  CHECK(names(minimised(back)) == names(corpus));
  for (const CorpusCase& c : back) {
    const auto same = std::find_if(corpus.begin(), corpus.end(),
                                   [&](const CorpusCase& other) { return other.name == c.name; });
    REQUIRE(same != corpus.end());
    CHECK(same->c == c.c);
    CHECK(same->features == c.features);
  }
}

TEST_CASE(
    "the corpus of the tree reaches what it says, and of engines only the right one keeps all "
    "laws") {
  std::vector<std::string> unreadable;
  const Corpus corpus = load_corpus(REMATCH_SOURCE_DIR "/properties/corpus", unreadable);
  CHECK(unreadable.empty());
  CHECK(pairs_of(corpus).size() >= 5900);
  Workspace workspace;
  const Corpus run = to_run(corpus);
  const auto keeps_all = [&](std::string_view name) {
    const std::unique_ptr<Subject> subject = make_subject(name);
    return std::all_of(run.begin(), run.end(),
                       [&](const CorpusCase& c) { return judge(c.c, *subject, workspace).kept(); });
  };
  for (const std::string& name : subject_names()) {
    if (!name.starts_with("engine")) continue;
    INFO(name);
    CHECK(keeps_all(name) == (name == "engine"));
  }
}

}  // namespace rematch
