#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/nn/module.h"

namespace rematch::bench {

/// A network with an input and a target of the mean squared error.
struct Model {
  nn::Sequential net;
  std::vector<std::string> names;  ///< Names of the layers: "conv2d".
  Tensor input;
  Tensor target;
};

struct NamedModel {
  std::string_view name;
  std::int64_t batch;  ///< The usual one.
  Model (*make)(std::int64_t batch, DType dtype);
};

/// mymodel: 1024-1024-1024-10 with ReLUs, of a tutorial on checkpointing. cifar: the small network
/// of many CIFAR-10 tutorials. deep64: 64 times Linear(256), ReLU, Dropout. residual32: 32 layers
/// with weights, convolutions of 16 channels in residual blocks. transformer: four blocks of width
/// 256 with causal, fused attention of 8 heads over 256 tokens, each block two layers. tiny: what a
/// step costs when there is nothing to compute.
std::span<const NamedModel> models();

/// Multiply-adds of the products of one forward of `layer` that made `y`, times two; elements for
/// layers without products.
std::int64_t forward_flops(const nn::Module& layer, const Tensor& y);

}  // namespace rematch::bench
