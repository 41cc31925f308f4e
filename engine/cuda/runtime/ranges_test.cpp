#include "engine/cuda/runtime/ranges.h"

#include <catch2/catch_test_macros.hpp>

#include "engine/ambient/ambient_scope.h"
#include "engine/ambient/ranges.h"
#include "engine/autograd/backward.h"
#include "engine/checkpoint/sequential.h"
#include "engine/cuda/testing/device.h"
#include "engine/nn/layers.h"
#include "engine/ops/arithmetic.h"

namespace rematch::cuda {

// Another test runs this one under a small profiler (ci/tests/nvtx) and reads what that saw.
DEVICE_TEST_CASE("a step on the device opens its ranges, for a profiler if there is one",
                 "[nvtx]") {
  const AmbientScope scope(std::make_shared<Ledger>(device_memory()));
  nn::Sequential net(std::vector<std::shared_ptr<nn::Module>>{std::make_shared<nn::Linear>(3, 4),
                                                              std::make_shared<nn::LayerNorm>(4)});
  for (Tensor p : net.parameters()) {
    p.copy_from_host(std::vector<std::byte>(static_cast<std::size_t>(p.bytes())));
  }
  Tensor x = Tensor::ones({2, 3}, DType::float32);
  x.set_requires_grad(true);
  const Tensors y = checkpoint_sequential(net.functions(), 1, {x}, LastSegment::checkpointed, {});
  backward(sum(y[0]));
  CHECK(x.grad().defined());
}

}  // namespace rematch::cuda
