#include "engine/ambient/ranges.h"

#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

#include "engine/autograd/backward.h"
#include "engine/checkpoint/sequential.h"
#include "engine/nn/layers.h"
#include "engine/ops/arithmetic.h"
#include "engine/testing/ledger_scope.h"
#include "engine/testing/values.h"

namespace rematch {
namespace {

using testing::LedgerScope;

/// Writes down each range, two spaces further in than the one around it.
class Listener final : public RangeListener {
 public:
  Listener() { set_range_listener(this); }
  ~Listener() override {
    set_range_listener(nullptr);
    CHECK(depth_ == 0);
  }
  void begin(const std::string& name) noexcept override {
    lines.push_back(std::string(2 * depth_++, ' ') + name);
  }
  void end() noexcept override { --depth_; }

  std::vector<std::string> lines;

 private:
  std::size_t depth_ = 0;
};

/// A step of two layers, in a checkpoint of both variants or without.
std::vector<std::string> ranges_of_step(int segments, bool reentrant) {
  Generator g{3, 11, 0};
  nn::Sequential net(std::vector<std::shared_ptr<nn::Module>>{
      std::make_shared<nn::Linear>(3, 4, true, DType::float32, &g),
      std::make_shared<nn::Activation>(nn::ActivationKind::relu)});
  Tensor x = testing::values_off_zero({2, 3}, 1, DType::float32);
  x.set_requires_grad(true);
  Listener listener;
  CheckpointOptions options;
  options.reentrant = reentrant;
  options.early_stop = false;
  const Tensor y = segments == 0 ? net.forward(x)
                                 : checkpoint_sequential(net.functions(), segments, {x},
                                                         LastSegment::checkpointed, options)[0];
  backward(sum(y));
  // Gradients of leaves are added up here and there.
  std::erase_if(listener.lines,
                [](const std::string& line) { return line.ends_with("AccumulateGrad"); });
  return listener.lines;
}

using Lines = std::vector<std::string>;

}  // namespace

TEST_CASE_METHOD(LedgerScope, "a step's ranges name its layers and the nodes of its backward") {
  CHECK(ranges_of_step(0, false) == Lines{"0 Linear", "1 Activation", "backward", "  SumBackward",
                                          "  ReluBackward", "  LinearBackward"});
}

TEST_CASE_METHOD(LedgerScope, "a recomputation is a range around its layers, within a backward") {
  const Lines non_reentrant = ranges_of_step(1, false);
  CHECK(non_reentrant == Lines{"0 Linear", "1 Activation", "backward", "  SumBackward",
                               "  ReluBackward", "    recomputation", "      0 Linear",
                               "      1 Activation", "  LinearBackward"});
  const Lines reentrant = ranges_of_step(1, true);
  CHECK(reentrant == Lines{"0 Linear", "1 Activation", "backward", "  SumBackward",
                           "  CheckpointBackward", "    recomputation", "      0 Linear",
                           "      1 Activation", "    backward", "      ReluBackward",
                           "      LinearBackward"});
}

TEST_CASE("a range without a listener makes no name") {
  bool made = false;
  {
    const Range range([&] {
      made = true;
      return std::string("never");
    });
    Listener late;
  }
  CHECK_FALSE(made);
}

}  // namespace rematch
