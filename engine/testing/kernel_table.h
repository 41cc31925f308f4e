#pragma once

// Ops whose kernels work in blocks, at sizes around each block: a new one is an entry of kernels().
// Tensors are made on the ambient device.

#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <complex>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/cpu/block_sizes.h"
#include "engine/math/attention.h"
#include "engine/math/lane_order.h"
#include "engine/ops/attention.h"
#include "engine/ops/batch_norm.h"
#include "engine/ops/conv2d.h"
#include "engine/ops/group_norm.h"
#include "engine/ops/layer_norm.h"
#include "engine/ops/linear.h"
#include "engine/ops/loss.h"
#include "engine/ops/moe.h"
#include "engine/ops/pool2d.h"
#include "engine/ops/recurrent.h"
#include "engine/ops/rms_norm.h"
#include "engine/ops/view.h"
#include "engine/testing/differentiate.h"
#include "engine/testing/plain_loops.h"

namespace rematch::testing {

using Complex = std::complex<double>;

/// Extents of the operands at one size.
using Operands = std::vector<Extents>;

struct Kernel {
  std::string_view name;
  /// Sizes around each block, and the operands that have them.
  std::vector<Operands> cases;
  std::function<Tensor(const Tensors&)> op;
  std::function<Plain<double>(const Plains<double>&)> loop;
  std::function<Plain<Complex>(const Plains<Complex>&)> derivative;
};

/// `loop` is a generic lambda.
template <class Loop>
Kernel kernel(std::string_view name, std::vector<Operands> cases,
              std::function<Tensor(const Tensors&)> op, Loop loop) {
  return {name, std::move(cases), std::move(op), loop, loop};
}

/// One less than the block, the block, one more, two, and two and one.
inline std::vector<std::int64_t> around(std::int64_t block) {
  return {block - 1, block, block + 1, 2 * block, 2 * block + 1};
}

template <class Make>
void add_around(std::vector<Operands>& cases, std::int64_t block, Make make) {
  for (const std::int64_t n : around(block)) cases.push_back(make(n));
}

inline std::vector<Operands> rows_and_columns(
    const std::function<Operands(std::int64_t rows, std::int64_t n)>& make) {
  std::vector<Operands> cases;
  add_around(cases, math::kSumLanes, [&](std::int64_t n) { return make(3, n); });
  add_around(cases, math::kSumBlock, [&](std::int64_t n) { return make(3, n); });
  add_around(cases, math::kChunkRows, [&](std::int64_t rows) { return make(rows, 5); });
  return cases;
}

inline std::vector<Operands> of_channels() {
  const auto make = [](std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w) {
    return Operands{{n, c, h, w}, {c}, {c}};
  };
  std::vector<Operands> cases;
  add_around(cases, math::kSumBlock / 2, [&](std::int64_t w) { return make(2, 4, 1, w); });
  add_around(cases, math::kSumLanes, [&](std::int64_t w) { return make(2, 4, 3, w); });
  add_around(cases, math::kChunkRows / 2, [&](std::int64_t c) { return make(2, 2 * c, 1, 3); });
  add_around(cases, math::kChunkRows, [&](std::int64_t n) { return make(n, 2, 1, 1); });
  return cases;
}

inline std::vector<Operands> of_linear() {
  namespace blocks = cpu::blocks;
  const auto make = [](std::int64_t rows, std::int64_t depth, std::int64_t columns) {
    return Operands{{rows, depth}, {columns, depth}, {columns}};
  };
  std::vector<Operands> cases;
  for (const std::int64_t block : {blocks::kProductRows, blocks::kProductBlockRows}) {
    add_around(cases, block, [&](std::int64_t n) { return make(n, 9, 7); });
  }
  add_around(cases, blocks::kProductDepth, [&](std::int64_t n) { return make(7, n, 9); });
  add_around(cases, blocks::kProductSmall / 16, [&](std::int64_t n) { return make(13, 16, n); });
  add_around(cases, blocks::kProductPacked / blocks::kProductDepth,
             [&](std::int64_t n) { return make(3, blocks::kProductDepth, n); });
  for (const std::int64_t block : {blocks::kProductBlockCols, blocks::kProductManyColumns}) {
    add_around(cases, block, [&](std::int64_t n) { return make(9, 7, n); });
    add_around(cases, block, [&](std::int64_t n) { return make(n, n, 3); });
  }
  return cases;
}

inline std::vector<Operands> of_moe() {
  const auto make = [](std::int64_t rows, std::int64_t n, std::int64_t experts) {
    return Operands{{rows, n}, {experts, n}, {experts, n, n}};
  };
  std::vector<Operands> cases{make(5, 33, 3)};
  constexpr std::int64_t kExperts = 256;
  add_around(cases, cpu::blocks::kMoeLogits / kExperts,
             [&](std::int64_t rows) { return make(rows, 3, kExperts); });
  return cases;
}

inline std::vector<Operands> of_recurrent(std::int64_t gates) {
  const auto make = [&](std::int64_t batch, std::int64_t steps, std::int64_t h) {
    return Operands{{batch, steps, 2}, {gates * h, 2}, {gates * h, h}, {gates * h}, {gates * h}};
  };
  std::vector<Operands> cases;
  // Samples that are worked on at a time, of 4 numbers a state.
  constexpr std::int64_t kSteps = 128;
  add_around(cases, cpu::blocks::kRecurrentKept / (kSteps * 4 * 4),
             [&](std::int64_t batch) { return make(batch, kSteps, 4); });
  add_around(cases, cpu::blocks::kRecurrentUnits / 32,
             [&](std::int64_t h) { return make(32, 2, h); });
  return cases;
}

inline std::vector<Operands> of_attention() {
  const auto make = [](std::int64_t queries, std::int64_t keys, std::int64_t width) {
    return Operands{{2, queries, width}, {2, keys, 2 * width}};
  };
  std::vector<Operands> cases;
  for (const std::int64_t n : around(math::AttentionShape::kBlock)) {
    cases.push_back(make(n, n, 4));
    cases.push_back(make(3, n, 4));
    cases.push_back(make(n, n + 5, 10));
  }
  return cases;
}

inline std::vector<Operands> of_conv2d() {
  std::vector<Operands> cases;
  for (const std::int64_t n : around(cpu::blocks::kConv2dChainOutputs)) {
    cases.push_back({{2, 2, 3, n + 1}, {3, 2, 2, 2}, {3}});
  }
  for (const std::int64_t rows : around(cpu::blocks::kConv2dChainOutputs / 8)) {
    cases.push_back({{1, 3, rows + 1, 9}, {2, 3, 2, 2}, {2}});
  }
  return cases;
}

inline std::vector<Operands> of_pool() {
  std::vector<Operands> cases;
  for (const std::int64_t n : around(math::kSumLanes)) {
    cases.push_back({{2, 3, 5, n}});
    cases.push_back({{2, 3, n, 7}});
  }
  return cases;
}

inline Tensor targets_of(const Tensor& x) {
  std::vector<double> targets;
  for (std::int64_t r = 0; r < x.shape()[0]; ++r) {
    targets.push_back(static_cast<double>(r % x.shape()[1]));
  }
  return Tensor::from(targets, {x.shape()[0]}, DType::int32);
}

inline Tensor apply_moe(const Tensors& in) {
  Tensor load = Tensor::zeros({in[1].shape()[0]}, in[0].dtype());
  return moe(in[0], in[1], in[2], load, {.top = 2});
}

inline RecurrentParameters parameters_of(const Tensors& in) { return {in[1], in[2], in[3], in[4]}; }

inline Kernel attention_kernel(std::string_view name, bool causal, bool fused) {
  return kernel(
      name, of_attention(),
      [=](const Tensors& in) {
        return attention(in[0], in[1], {.heads = 2, .causal = causal, .fused = fused});
      },
      [=](const auto& in) { return plain_attention(in, 2, causal); });
}

inline const std::vector<Kernel>& kernels() {
  static const std::vector<Kernel> table{
      kernel(
          "linear", of_linear(), [](const Tensors& in) { return linear(in[0], in[1], in[2]); },
          [](const auto& in) { return plain_linear(in); }),
      kernel(
          "layer_norm", rows_and_columns([](auto rows, auto n) {
            return Operands{{rows, n}, {n}, {n}};
          }),
          [](const Tensors& in) { return layer_norm(in[0], in[1], in[2]); },
          [](const auto& in) { return plain_norm(in, true); }),
      kernel(
          "group_norm", rows_and_columns([](auto rows, auto n) {
            return Operands{{rows, n}, {n}, {n}};
          }),
          [](const Tensors& in) { return group_norm(in[0], 1, in[1], in[2]); },
          [](const auto& in) { return plain_norm(in, true); }),
      kernel(
          "group_norm of images", of_channels(),
          [](const Tensors& in) { return group_norm(in[0], in[1].shape()[0] / 2, in[1], in[2]); },
          [](const auto& in) { return plain_channel_norm(in, 2); }),
      kernel(
          "batch_norm", of_channels(),
          [](const Tensors& in) {
            Tensor mean = Tensor::zeros(in[1].shape(), in[0].dtype());
            Tensor var = Tensor::ones(in[1].shape(), in[0].dtype());
            return batch_norm(in[0], in[1], in[2], mean, var);
          },
          [](const auto& in) { return plain_channel_norm(in, 0); }),
      kernel(
          "rms_norm", rows_and_columns([](auto rows, auto n) {
            return Operands{{rows, n}, {n}};
          }),
          [](const Tensors& in) { return rms_norm(in[0], in[1]); },
          [](const auto& in) { return plain_norm(in, false); }),
      kernel(
          "cross_entropy", rows_and_columns([](auto rows, auto n) {
            return Operands{{rows, n}};
          }),
          [](const Tensors& in) { return cross_entropy(in[0], targets_of(in[0])); },
          [](const auto& in) { return plain_cross_entropy(in); }),
      kernel("moe", of_moe(), apply_moe, [](const auto& in) { return plain_moe(in, 2); }),
      kernel(
          "gru", of_recurrent(3), [](const Tensors& in) { return gru(in[0], parameters_of(in)); },
          [](const auto& in) { return plain_recurrent(in, false); }),
      kernel(
          "lstm", of_recurrent(4), [](const Tensors& in) { return lstm(in[0], parameters_of(in)); },
          [](const auto& in) { return plain_recurrent(in, true); }),
      attention_kernel("attention", false, false),
      attention_kernel("causal attention", true, false),
      attention_kernel("fused attention", false, true),
      attention_kernel("fused causal attention", true, true),
      kernel(
          "conv2d", of_conv2d(),
          [](const Tensors& in) { return conv2d(in[0], in[1], in[2], 1, 0); },
          [](const auto& in) { return plain_conv2d(in); }),
      kernel(
          "max_pool2d", of_pool(), [](const Tensors& in) { return max_pool2d(in[0], 3, 2); },
          [](const auto& in) { return plain_pool(in, 3, 2, true); }),
      kernel(
          "avg_pool2d", of_pool(), [](const Tensors& in) { return avg_pool2d(in[0], 2, 2); },
          [](const auto& in) { return plain_pool(in, 2, 2, false); }),
  };
  return table;
}

/// Multiples of 2^-7, so that float32 and float64 agree about which of two is larger.
inline Tensors leaves_of(const Operands& operands, DType dtype) {
  Tensors leaves;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const Shape shape(operands[i]);
    std::vector<double> values = values_off_zero(shape, Catch::getSeed() + i).to_vector();
    // Small enough that no gate and no softmax saturates.
    for (double& v : values) v = std::round(v * 32) / (i == 0 ? 64 : 128);
    leaves.push_back(Tensor::from(values, shape, dtype).set_requires_grad(true));
  }
  return leaves;
}

inline double largest(const std::vector<double>& values) {
  double most = 0;
  for (const double v : values) most = std::max(most, std::fabs(v));
  return most;
}

inline void check_close(const std::vector<double>& got, const std::vector<double>& expected,
                        double bound) {
  REQUIRE(got.size() == expected.size());
  double worst = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    // A NaN is no closer than that.
    const double error = std::fabs(got[i] - expected[i]);
    worst = error <= bound ? worst : std::max(bound * 2, error);
  }
  CHECK(worst <= bound);
}

// Values and sums have at most 2^18 terms of at most 2^8 each, whose slopes are at most 2^8: in
// float64 their roundings add up to less than 2^(18 + 16 - 53) = 2^-19. In float32 each element is
// a sum of at most 2^11 terms one after the other (lanes and blocks are added as a tree), which
// lose 2^(11 - 24) of the largest, and twice or four times that on their way through a slope:
// 2^-11. A block that is left out, or read at another place, shows in the first digits.
inline constexpr double kBound = 0x1p-19;
inline constexpr double kFloat32Bound = 0x1p-11;

/// "linear of [95, 9] [7, 9] [7]".
inline std::string described(const Kernel& k, const Operands& operands) {
  std::string text = std::string(k.name) + " of";
  for (const Extents& e : operands) text += " " + to_string(Shape(e));
  return text;
}

}  // namespace rematch::testing
