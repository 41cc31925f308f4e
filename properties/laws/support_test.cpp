#include "properties/laws/support.h"

#include <catch2/catch_test_macros.hpp>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "properties/forecast/testing/small_cases.h"
#include "properties/laws/testing/synthetic.h"

namespace rematch {

TEST_CASE("a distance is relative to the largest number expected, or to 2^-10") {
  using Values = std::vector<double>;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  CHECK(distance(Values{1, -4}, Values{1, -3}) == 0.25);
  CHECK(distance(Values{1, -4}, Values{3, -4}) == 0.5);
  CHECK(distance(Values{0x1p-20}, Values{0}) == 0x1p-10);
  CHECK(distance(Values{0.0}, Values{-0.0}) == 0);
  CHECK(distance(Values{kNaN, kInfinity, 1}, Values{kNaN, kInfinity, 1}) == 0);
  CHECK(distance(Values{kInfinity, 2}, Values{kInfinity, 1}) == 0.5);
  CHECK(distance(Values{1}, Values{kNaN}) == kInfinity);
  CHECK(distance(Values{1}, Values{kInfinity}) == kInfinity);
  CHECK(distance(Values{-kInfinity}, Values{kInfinity}) == kInfinity);
}

TEST_CASE("what later forwards save is not known where a draw or values may decide it") {
  const auto judged = [](LayerSpec layer, bool measured, int microbatches, bool train = true) {
    Case c = testing::synthetic_case();
    c.layers.push_back(std::move(layer));
    c.protocol.train = train;
    c.protocol.steps = 1;
    c.protocol.microbatches = microbatches;
    testing::Synthetic s(c);
    s.forecast.measured = measured;
    CHECK(saves_may_vary(s.evidence()) != knows_saved_bytes(s.evidence()));
    CHECK((s.verdict("saved-at-most") == Verdict::not_applicable) == saves_may_vary(s.evidence()));
    return saves_may_vary(s.evidence());
  };
  LayerSpec skips = testing::layer("stochastic_depth");
  skips.p = 0.5;
  CHECK(judged(skips, true, 2));
  CHECK_FALSE(judged(skips, true, 1));
  CHECK_FALSE(judged(skips, false, 2));
  CHECK_FALSE(judged(skips, true, 2, false));
  skips.eval = true;
  CHECK_FALSE(judged(skips, true, 2));
  skips = testing::layer("stochastic_depth");
  CHECK_FALSE(judged(skips, true, 2));
  const LayerSpec exits = testing::layer("early_exit");
  CHECK(judged(exits, true, 2));
  CHECK(judged(exits, true, 2, false));
  CHECK_FALSE(judged(exits, true, 1));
}

TEST_CASE("an output that a loss reads may be saved, though a layer of a segment saved it before") {
  Case c =
      testing::case_of({1, 2}, {testing::dense(8), testing::layer("duplicate"), testing::dense(1)});
  c.plan.segments = {testing::segment(0, 3, Variant::non_reentrant)};
  const auto kept = [&](std::int64_t saved) {
    testing::Synthetic s(c);
    // The last layer saves its operand, which is the further output, too.
    LayerValue operand;
    operand.layer = 2;
    operand.saved = true;
    operand.memory = 1;
    operand.bytes = 32;
    s.plain.values = {operand};
    s.plain.bytes.front().saved = 100;
    s.checkpointed.bytes.front().saved = saved;
    return s.verdict("saved-at-most") == Verdict::kept;
  };
  // Without that operand, and with the input and the main output.
  const std::int64_t most = 100 - 32 + 8 + 4;
  CHECK(kept(most));
  CHECK_FALSE(kept(most + 1));
  c.protocol.auxiliary_losses = true;
  CHECK(kept(most + 32));
  CHECK_FALSE(kept(most + 33));
}

TEST_CASE("a layer behind a segment may save what it could not save in the plain run") {
  Case c = testing::case_of({1, 2}, {testing::layer("relu"), testing::layer("mul")});
  c.layers[1].from = {{-1, 0}};
  c.plan.segments = {testing::segment(0, 1, Variant::reentrant)};
  const auto kept = [&](bool unknown, std::int64_t saved) {
    testing::Synthetic s(c);
    const auto value = [](int layer, int index, std::uint64_t memory, bool is_saved) {
      LayerValue v;
      v.layer = layer;
      v.index = index;
      v.saved = is_saved;
      v.memory = memory;
      v.bytes = 8;
      return v;
    };
    // The relu saves its output, which is an operand of the product; that makes one tensor beside
    // its output.
    s.plain.values = {value(0, 0, 1, false), value(0, 0, 1, true), value(1, 0, 2, false),
                      value(1, 1, 3, false)};
    s.forecast.saves_unknown[1] = unknown;
    s.plain.bytes.front().saved = 100;
    s.checkpointed.bytes.front().saved = saved;
    return s.verdict("saved-at-most") == Verdict::kept;
  };
  // Without what the relu saves, and with its input.
  CHECK(kept(false, 100 - 8 + 8));
  CHECK_FALSE(kept(false, 100 - 8 + 8 + 1));
  // With the product's operand after all, its output and the tensor beside it.
  CHECK(kept(true, 100 + 8 + 16));
  CHECK_FALSE(kept(true, 100 + 8 + 17));
}

TEST_CASE("the plain run does not bound layers that require grad behind a segment alone") {
  Case c = testing::tanh_chain(3);
  c.protocol.input_requires_grad = true;
  c.plan.segments = {testing::segment(0, 1, Variant::reentrant)};
  const auto judged = [&](std::size_t layer) {
    testing::Synthetic s(c);
    s.forecast.records_otherwise[layer] = true;
    s.checkpointed.bytes.front().saved += 1 << 20;
    return s.verdict("saved-within-plain");
  };
  CHECK(judged(0) == Verdict::violated);
  CHECK(judged(1) == Verdict::not_applicable);
}

TEST_CASE("a recomputation that takes another way may hold other amounts in its backward") {
  Case c = testing::case_of({2, 2}, {testing::layer("tanh"), testing::layer("early_exit")});
  c.plan.segments = {testing::segment(0, 2, Variant::reentrant)};
  const auto kept = [&](std::uint64_t again, const char* kind = "early_exit") {
    c.layers[1] = testing::layer(kind);
    testing::Synthetic s(c);
    LayerValue value;
    value.hash = 1;
    s.checkpointed.values = {value, value};
    s.checkpointed.values[1].execution = 1;
    s.checkpointed.values[1].hash = again;
    s.checkpointed.executions.clear();
    for (LiveReading& r : s.checkpointed.held) {
      if (r.event == Event::node) r.live = 1 << 20;
    }
    return s.verdict("held-in-backward") == Verdict::kept;
  };
  CHECK_FALSE(kept(1));
  CHECK(kept(2));
  CHECK_FALSE(kept(2, "tanh"));
}

TEST_CASE("a kept result that only another segment saves is there until the graph is gone") {
  Case c =
      testing::case_of({1, 2}, {testing::layer("relu"), testing::dense(4), testing::layer("tanh")});
  SegmentSpec first = testing::segment(0, 2, Variant::non_reentrant);
  first.choice.keep = {{"linear"}};
  c.plan.segments = {first, testing::segment(2, 3, Variant::non_reentrant)};
  const auto kept = [&](int saver, std::int64_t held) {
    testing::Synthetic s(c);
    LayerValue result;
    result.layer = 1;
    result.memory = 1;
    result.bytes = 16;
    LayerValue saved = result;
    saved.layer = saver;
    saved.saved = true;
    s.plain.values = {result, saved};
    for (LiveReading& r : s.plain.held) r.live = 100;
    for (LiveReading& r : s.checkpointed.held) {
      const bool begins = r.event == Event::node && r.layer == 0;
      r.live = r.entered = begins ? held : 0;
    }
    return s.verdict("held-in-backward") == Verdict::kept;
  };
  // When the backward of the relu begins, its own segment has read what its linear layer saved.
  CHECK(kept(1, 100));
  CHECK_FALSE(kept(1, 101));
  CHECK(kept(2, 116));
  CHECK_FALSE(kept(2, 117));
}

TEST_CASE("where the forecast's bytes mean nothing, a backward is judged by what it leaves") {
  Case c = testing::synthetic_case();
  const auto verdict = [&](std::string_view law, std::int64_t saved, std::int64_t left) {
    testing::Synthetic s(c);
    s.forecast.bytes_known = false;
    for (ByteReading& r : s.checkpointed.bytes) {
      if (r.moment == Moment::after_forward) r.saved = saved;
      if (r.moment == Moment::after_backward) r.saved = left;
    }
    return s.verdict(law);
  };
  CHECK(verdict("saved-bytes", 1, 0) == Verdict::not_applicable);
  CHECK(verdict("bytes-after-backward", 1, 0) == Verdict::kept);
  CHECK(verdict("bytes-after-backward", 1, 1) == Verdict::violated);
  c.protocol.forwards_first = true;
  c.protocol.microbatches = 2;
  // The last backward leaves a byte, too.
  CHECK(verdict("bytes-after-backward", 1, 1) == Verdict::violated);
}

TEST_CASE("a recomputation need not draw what a policy of the subject may keep") {
  Case c = testing::synthetic_case();
  const auto kept = [&](const std::string& policy) {
    if (!policy.empty()) c.options[kPolicy] = policy;
    testing::Synthetic s(c);
    std::erase_if(s.checkpointed.draws, [](const Draw& d) { return d.execution > 0; });
    s.forecast.measured = true;
    CHECK(knows_saved_bytes(s.evidence()) != policy_may_keep(c.options));
    return s.verdict("dropout-masks") == Verdict::kept;
  };
  CHECK_FALSE(kept(""));
  CHECK_FALSE(kept("nothing at all"));
  CHECK(kept("products"));
}

}  // namespace rematch
