// Worked by hand: three tanh on [2, 3] float32, 24 bytes each, an input and a target of 24, a loss
// of 4.
#include <catch2/catch_test_macros.hpp>
#include <string>

#include "properties/forecast/testing/small_cases.h"

namespace rematch {
namespace {

using namespace testing;

struct Expected {
  Event event;
  int layer;
  int execution;
  std::int64_t entered;
  std::int64_t live;
  std::int64_t peak;
};

void check(const std::vector<LiveReading>& got, const std::vector<Expected>& expected) {
  REQUIRE(got.size() == expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    INFO("event " << i);
    CHECK(got[i].event == expected[i].event);
    CHECK(got[i].layer == expected[i].layer);
    CHECK(got[i].execution == expected[i].execution);
    CHECK(got[i].entered == expected[i].entered);
    CHECK(got[i].live == expected[i].live);
    CHECK(got[i].peak == expected[i].peak);
    CHECK(got[i].offloaded == 0);
  }
}

TEST_CASE("a plain run holds every output until its backward, and two gradients at once") {
  check(forecast_of(tanh_chain(3)).live,
        {
            {Event::layer, 0, 0, 24, 48, 48},
            {Event::layer, 1, 0, 48, 72, 72},
            {Event::layer, 2, 0, 72, 96, 96},
            {Event::forward, -1, 0, 0, 124, 124},
            // The loss reads output and target, and makes a gradient from one of 4 bytes.
            {Event::node, -1, 0, 0, 124, 152},
            {Event::node, 2, 0, 0, 100, 148},
            {Event::node, 1, 0, 0, 76, 124},
            {Event::node, 0, 0, 0, 52, 100},
            {Event::gradient, -1, 0, 0, 52, 52},
            {Event::backward, -1, 0, 0, 52, 52},
            {Event::graph, -1, 0, 0, 48, 52},
            {Event::step, -1, 0, 0, 0, 48},
        });
}

TEST_CASE(
    "a non-reentrant segment holds two values in its forward and all of them in its "
    "recomputation") {
  Case c = tanh_chain(3);
  c.plan.segments = {segment(0, 3, Variant::non_reentrant)};
  const Forecast f = forecast_of(c);
  check(f.live, {
                    {Event::layer, 0, 0, 24, 48, 48},
                    {Event::layer, 1, 0, 48, 72, 72},
                    {Event::layer, 2, 0, 48, 72, 72},
                    {Event::forward, -1, 0, 0, 76, 76},
                    {Event::node, -1, 0, 0, 52, 104},
                    {Event::layer, 0, 1, 52, 76, 76},
                    {Event::layer, 1, 1, 76, 100, 100},
                    {Event::layer, 2, 1, 100, 124, 124},
                    {Event::node, 2, 0, 0, 100, 148},
                    {Event::node, 1, 0, 0, 76, 124},
                    {Event::node, 0, 0, 0, 52, 100},
                    {Event::gradient, -1, 0, 0, 52, 52},
                    {Event::backward, -1, 0, 0, 52, 52},
                    {Event::graph, -1, 0, 0, 48, 52},
                    {Event::step, -1, 0, 0, 0, 48},
                });
  CHECK(f.recomputations == std::vector<std::size_t>{5});
}

TEST_CASE("a reentrant segment holds its output and that output's gradient all through its own") {
  Case c = tanh_chain(2);
  c.plan.segments = {segment(0, 2, Variant::reentrant)};
  check(forecast_of(c).live, {
                                 {Event::layer, 0, 0, 24, 48, 48},
                                 {Event::layer, 1, 0, 48, 72, 72},
                                 {Event::forward, -1, 0, 0, 76, 76},
                                 {Event::node, -1, 0, 0, 52, 104},
                                 {Event::layer, 0, 1, 52, 76, 76},
                                 {Event::layer, 1, 1, 76, 100, 100},
                                 // Output and gradient, 48 bytes, stay beside the new gradient.
                                 {Event::node, 1, 0, 0, 124, 124},
                                 {Event::node, 0, 0, 0, 100, 148},
                                 {Event::gradient, -1, 0, 0, 100, 100},
                                 // The segment's own node.
                                 {Event::node, -1, 0, 0, 52, 100},
                                 {Event::gradient, -1, 0, 0, 52, 52},
                                 {Event::backward, -1, 0, 0, 52, 52},
                                 {Event::graph, -1, 0, 0, 48, 52},
                                 {Event::step, -1, 0, 0, 0, 48},
                             });
}

TEST_CASE("the state of an optimizer comes with the first step, and stays") {
  Case c = case_of({2, 3}, {dense(2)});
  c.protocol.optimizer = OptimizerKind::adam;
  c.protocol.steps = 3;
  const Forecast f = forecast_of(c);
  // Six weights and two biases, their gradients, and twice as much for adam.
  constexpr std::int64_t kModel = 8 * 4;
  std::vector<std::int64_t> after_steps;
  for (const LiveReading& r : f.live) {
    if (r.event == Event::step) after_steps.push_back(r.live);
  }
  CHECK(after_steps == std::vector<std::int64_t>{4 * kModel, 4 * kModel});
  CHECK(f.live[0].entered == kModel + 24);
  const std::size_t second = f.live.size() / 2;
  CHECK(f.live[second].entered == 3 * kModel + 24);
}

}  // namespace
}  // namespace rematch
