// Plans that cuDNN makes for devices described to it. No device is needed for that, so these
// tests run wherever cuDNN is.
#include "engine/cuda/runtime/cudnn_graph.h"

#include <catch2/catch_test_macros.hpp>
#include <iterator>
#include <limits>
#include <string_view>
#include <tuple>
#include <vector>

#include "engine/cpu/testing/convolutions.h"
#include "engine/cuda/testing/described_devices.h"

namespace rematch::cuda {
namespace {

using cpu::testing::kConvolutions;
using namespace testing;

Descriptor described(std::string_view properties) {
  Descriptor device(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  // A literal, so there is a zero behind it, which cuDNN wants to be counted.
  device.set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, properties.data(),
             static_cast<std::int64_t>(properties.size()) + 1);
  device.finalize("the description of a device");
  return device;
}

/// Engine and scratch of each plan that may be used, in the order of the candidates.
using Usable = std::vector<std::tuple<std::int64_t, std::int64_t>>;

/// The first `most` of them.
Usable usable(const ConvolutionProblem& problem, const Descriptor& device,
              std::size_t most = std::numeric_limits<std::size_t>::max()) {
  ConvolutionCandidates candidates(problem, &device);
  Usable found;
  for (int i = 0; i < candidates.count() && found.size() < most; ++i) {
    if (const auto plan = candidates.plan(i)) {
      found.emplace_back(plan->engine(), plan->scratch_bytes());
    }
  }
  return found;
}

/// Calls f(problem) for every pass of `shape` in every type, precision and alignment.
template <typename F>
void for_each_problem(const Conv2dShape& shape, const F& f) {
  for (const ConvolutionPass pass :
       {ConvolutionPass::forward, ConvolutionPass::grad_input, ConvolutionPass::grad_weight}) {
    for (const bool aligned : {true, false}) {
      for (const cudnnDataType_t type :
           {CUDNN_DATA_FLOAT, CUDNN_DATA_DOUBLE, CUDNN_DATA_BFLOAT16}) {
        for (const bool tf32 : {false, true}) {
          if (type != CUDNN_DATA_FLOAT && tf32) continue;
          CAPTURE(to_string(pass), type, tf32, aligned);
          f(ConvolutionProblem{shape, pass, type, tf32, aligned});
        }
      }
    }
  }
}

}  // namespace

TEST_CASE("cuDNN has a deterministic plan for every pass of every convolution on H200 and A100") {
  // The CIFAR10 network's layers at the batch sizes that are timed.
  std::vector<Conv2dShape> shapes(std::begin(kConvolutions), std::end(kConvolutions));
  for (const std::int64_t n : {64, 1024}) {
    shapes.push_back({n, 3, 32, 32, 32, 3, 3, 1, 1, 1, 1});
    shapes.push_back({n, 32, 32, 32, 64, 3, 3, 1, 1, 1, 1});
    shapes.push_back({n, 64, 16, 16, 64, 3, 3, 1, 1, 1, 1});
  }
  for (const std::string_view properties : {kH200, kA100}) {
    const Descriptor device = described(properties);
    for (const Conv2dShape& s : shapes) {
      CAPTURE(properties, s.n, s.c, s.h, s.w, s.out_c, s.kh, s.kw, s.stride_h, s.stride_w, s.pad_h,
              s.pad_w);
      for_each_problem(s, [&](const ConvolutionProblem& problem) {
        CHECK(usable(problem, device, 1).size() == 1);
      });
    }
  }
}

TEST_CASE(
    "cuDNN has a deterministic plan for convolutions with their bias in float32 and bfloat16") {
  for (const std::string_view properties : {kH200, kA100}) {
    const Descriptor device = described(properties);
    for (const Conv2dShape& s : kConvolutions) {
      CAPTURE(properties, s.n, s.c, s.h, s.w, s.out_c, s.kh, s.kw, s.stride_h, s.stride_w, s.pad_h,
              s.pad_w);
      for_each_problem(s, [&](ConvolutionProblem problem) {
        if (problem.pass != ConvolutionPass::forward || problem.type == CUDNN_DATA_DOUBLE) return;
        problem.bias = true;
        CHECK(usable(problem, device, 1).size() == 1);
      });
    }
  }
}

TEST_CASE("cuDNN's engines that add atomically are proposed, and never planned") {
  // Their numbers in cuDNN 9, which notes them as not deterministic.
  constexpr std::int64_t kGradInput = 25;
  constexpr std::int64_t kGradWeight = 20;
  const Descriptor device = described(kH200);
  for (const Conv2dShape& s : kConvolutions) {
    CAPTURE(s.n, s.c, s.h, s.w, s.out_c, s.kh, s.kw);
    for_each_problem(s, [&](const ConvolutionProblem& problem) {
      if (problem.pass == ConvolutionPass::forward) return;
      const std::int64_t excluded =
          problem.pass == ConvolutionPass::grad_input ? kGradInput : kGradWeight;
      for (const auto& [engine, scratch] : usable(problem, device)) CHECK(engine != excluded);
      const ConvolutionCandidates candidates(problem, &device);
      bool is_proposed = false;
      for (int i = 0; i < candidates.count(); ++i) {
        is_proposed = is_proposed || candidates.engine(i) == excluded;
      }
      CHECK(is_proposed);
    });
  }
}

TEST_CASE("a convolution's plans are the same, in the same order, each time cuDNN is asked") {
  const Descriptor device = described(kH200);
  for (const Conv2dShape& s : kConvolutions) {
    for_each_problem(s, [&](const ConvolutionProblem& problem) {
      CHECK(usable(problem, device, 3) == usable(problem, described(kH200), 3));
    });
  }
}

TEST_CASE("tensor cores that round to TF32 are planned for when asked for, and not otherwise") {
  const Descriptor device = described(kH200);
  ConvolutionProblem problem{.shape = {1024, 64, 16, 16, 128, 3, 3, 1, 1, 1, 1}, .aligned = true};
  const Usable strict = usable(problem, device);
  problem.tf32 = true;
  const Usable tf32 = usable(problem, device);
  CHECK_FALSE(strict.empty());
  CHECK(strict.size() < tf32.size());
}

}  // namespace rematch::cuda
