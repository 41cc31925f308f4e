#pragma once

// Ways to checkpoint a program, each of which is compared with the plain run.

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <functional>
#include <optional>
#include <vector>

#include "engine/autograd/backward.h"
#include "engine/autograd/offload.h"
#include "engine/checkpoint/sequential.h"
#include "engine/testing/ambient_snapshot.h"
#include "engine/testing/computed_ops.h"
#include "engine/testing/values.h"

namespace rematch::testing {

enum class Way {
  plain,
  non_reentrant,
  late_stop,
  reentrant,
  nested,
  policy,
  offloaded,
  sequential,
};

/// Runs functions in one of these ways.
struct Runner {
  Way way;
  Offload& offload;

  Tensors operator()(const Function& f, const Tensors& in) const {
    CheckpointOptions options{.reentrant = way == Way::reentrant,
                              .early_stop = way != Way::late_stop,
                              .determinism = DeterminismCheck::values};
    std::optional<OffloadScope> scope;
    if (way == Way::plain) return f(in);
    if (way == Way::offloaded) scope.emplace(offload);
    if (way == Way::policy) {
      options.policy = [](const OpInstance& op) {
        // An index that overflowed would be negative.
        return op.index >= 0 && op.index % 2 == 0 ? Keep::must_save : Keep::must_recompute;
      };
    }
    if (way == Way::sequential) {
      return checkpoint_sequential(std::vector<Function>{f}, 1, in, LastSegment::checkpointed,
                                   options);
    }
    if (way != Way::nested) return checkpoint(f, in, options);
    return checkpoint([f, options](const Tensors& t) { return checkpoint(f, t, options); }, in,
                      {.reentrant = true});
  }
};

/// Walks back from the outputs, each with its own gradient. Returns outputs and gradients.
inline Tensors trained(const Tensors& outputs, const Tensors& leaves) {
  Tensors all;
  Tensors roots;
  Tensors gradients;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    all.push_back(outputs[i].detach());
    if (!outputs[i].requires_grad()) continue;
    roots.push_back(outputs[i]);
    gradients.push_back(values_off_zero(outputs[i].shape(), 1000 + i, outputs[i].dtype()));
  }
  backward(roots, gradients);
  for (const Tensor& leaf : leaves) all.push_back(leaf.grad());
  return all;
}

/// Trains with n of something. Its results must not depend on the way of the run.
using Program = std::function<Tensors(std::size_t n, const Runner& run)>;

/// Compares a run in this way with the plain one. Returns how many more ops it computed.
inline std::int64_t check_way(const Program& program, std::size_t n, Way way, Offload& offload) {
  CAPTURE(n, static_cast<int>(way));
  const std::int64_t warnings = frozen_checkpoint_warnings();
  std::int64_t computed = 0;
  const auto outcome_of = [&](Way how) {
    ambient().streams = Streams(7);
    const testing::ComputedOps ops;
    Tensors outcome = program(n, {how, offload});
    computed = ops.count - computed;
    return outcome;
  };
  const Tensors expected = outcome_of(Way::plain);
  const AmbientSnapshot plain = AmbientSnapshot::now();
  const Tensors got = outcome_of(way);
  REQUIRE(got.size() == expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (!same_bits(got[i], expected[i])) FAIL("tensor " << i);
  }
  CHECK(AmbientSnapshot::now() == plain);
  CHECK(frozen_checkpoint_warnings() == warnings);
  return computed;
}

inline Way ways() {
  return GENERATE(Way::non_reentrant, Way::late_stop, Way::reentrant, Way::nested, Way::policy,
                  Way::offloaded, Way::sequential);
}

inline void check_ways(const Program& program, std::size_t n, Offload& offload) {
  check_way(program, n, ways(), offload);
}

}  // namespace rematch::testing
