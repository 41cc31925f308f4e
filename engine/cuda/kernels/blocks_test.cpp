// Ops whose kernels work in blocks, on the device as on the CPU, which plain_loops_test.cpp
// compares with loops that know no block: around each block, outputs and the gradients of all
// operands.
#include <memory>

#include "engine/ambient/ambient_scope.h"
#include "engine/cuda/testing/device.h"
#include "engine/memory/ledger.h"
#include "engine/testing/kernel_table.h"

namespace rematch::cuda {
namespace {

using rematch::testing::check_close;
using rematch::testing::kernels;

using Numbers = std::vector<std::vector<double>>;

/// The output and the gradients of all operands.
Numbers run(const rematch::testing::Kernel& k, const rematch::testing::Operands& operands,
            DType dtype, bool on_device) {
  const auto ledger =
      on_device ? std::make_shared<Ledger>(device_memory()) : std::make_shared<Ledger>();
  const AmbientScope scope(ledger);
  const Tensors in = rematch::testing::leaves_of(operands, dtype);
  const Tensor y = k.op(in);
  REQUIRE(y.device() == (on_device ? Device::cuda : Device::cpu));
  rematch::testing::differentiate(y);
  Numbers numbers{y.to_vector()};
  for (const Tensor& x : in) numbers.push_back(x.grad().to_vector());
  return numbers;
}

}  // namespace

DEVICE_TEST_CASE(
    "a kernel that works in blocks gives the CPU's numbers on the device, around each block") {
  for (const rematch::testing::Kernel& k : kernels()) {
    for (const rematch::testing::Operands& operands : k.cases) {
      for (const DType dtype : {DType::float32, DType::float64}) {
        INFO(described(k, operands) << ", " << to_string(dtype) << ", seed " << Catch::getSeed());
        const Numbers expected = run(k, operands, dtype, false);
        const Numbers got = run(k, operands, dtype, true);
        // Both keep that distance from the loops.
        const double bound =
            dtype == DType::float64 ? rematch::testing::kBound : rematch::testing::kFloat32Bound;
        for (std::size_t i = 0; i < got.size(); ++i) {
          CAPTURE(i);
          check_close(got[i], expected[i],
                      2 * bound * std::max(1.0, rematch::testing::largest(expected[i])));
        }
      }
    }
  }
}

}  // namespace rematch::cuda
