// The proof that a hunt can fail: five wrong mechanics, each caught and shrunk.
#include <catch2/catch_test_macros.hpp>

#include "engine/autograd/accumulate.h"
#include "properties/hunt/hunt.h"
#include "properties/subjects/engine_subject.h"

namespace rematch {
namespace {

class NoRngRestore final : public Mechanics {
 public:
  void restore_rng(Ambient&, const std::vector<Generator>&) const override {}
};

class GradientTwice final : public Mechanics {
 public:
  Tensor return_gradient(const Tensor& bound) const override {
    const Tensor g = bound.grad();
    return g.defined() ? sum_of(g, g) : g;
  }
};

class RemainderFirst final : public Mechanics {
 public:
  std::vector<Segment> partition(int layers, int segments, LastSegment last) const override {
    std::vector<Segment> cut = Mechanics::partition(layers, segments, last);
    const int surplus = layers % segments;
    for (std::size_t i = 0; i < cut.size(); ++i) {
      if (i > 0) cut[i].begin += surplus;
      if (i + 1 < cut.size()) cut[i].end += surplus;
    }
    return cut;
  }
};

class LastCheckpointed final : public Mechanics {
 public:
  std::vector<Segment> partition(int layers, int segments, LastSegment) const override {
    return Mechanics::partition(layers, segments, LastSegment::checkpointed);
  }
};

class NothingFreed final : public Mechanics {
 public:
  void release(Tensor&) const override {}
};

class StateNotPutBack final : public Mechanics {
 public:
  void put_back_rng(Ambient&, const std::vector<Generator>&) const override {}
};

HuntFailure caught(const Mechanics& broken) {
  HuntOptions options;
  options.cases = 5000;
  options.make_subject = [&] { return std::make_unique<EngineSubject>(&broken); };
  const HuntResult result = hunt(options);
  REQUIRE(result.failure.has_value());
  INFO(result.failure->breach.place);
  CHECK(result.failure->smallest.layers.size() <= 4);
  // The shrunk case by itself breaks the same law, and the correct engine keeps it.
  EngineSubject wrong(&broken);
  EngineSubject right;
  Bench bench;
  const Verdict again = judge(result.failure->smallest, wrong, bench);
  REQUIRE(again.breach.has_value());
  CHECK(again.breach->law == result.failure->breach.law);
  CHECK(judge(result.failure->smallest, right, bench).held());
  return *result.failure;
}

}  // namespace

TEST_CASE("a replay from the wrong random state is caught and shrunk to at most four layers") {
  caught(NoRngRestore());
}

TEST_CASE("a gradient that is counted twice is caught and shrunk to at most four layers") {
  caught(GradientTwice());
}

TEST_CASE("a remainder in the first segment is caught though no gradient changes") {
  caught(RemainderFirst());
}

TEST_CASE("a checkpointed last segment is caught though no gradient changes") {
  caught(LastCheckpointed());
}

TEST_CASE(
    "recomputed tensors that are kept after their use are caught though no gradient changes") {
  CHECK(caught(NothingFreed()).breach.law == "bytes-after-backward");
}

TEST_CASE("random state that is not put back after a replay is caught") {
  caught(StateNotPutBack());
}

}  // namespace rematch
