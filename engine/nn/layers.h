#pragma once

#include <cstdint>

#include "engine/nn/module.h"
#include "engine/random/generator.h"

namespace rematch::nn {

/// A parameter: a leaf under Tag::parameters that requires grad.
Tensor parameter(const Shape& shape, DType dtype);

/// Fills with uniform values in [-bound, bound] drawn from `generator`.
void fill_uniform(Tensor& t, double bound, Generator& generator);
/// Fills with standard normal values drawn from `generator`.
void fill_normal(Tensor& t, Generator& generator);

/// y = x W^T + b with W[out, in]. Uninitialised unless a generator is given, which then draws
/// uniformly from +-1/sqrt(in), PyTorch's default range.
class Linear final : public Module {
 public:
  Linear(std::int64_t in, std::int64_t out, bool bias = true, DType dtype = DType::float32,
         Generator* generator = nullptr);
  /// Tied to the parameters given; `bias` may be undefined.
  Linear(Tensor weight, Tensor bias);
  Tensor forward(const Tensor& x) override;
};

class Conv2d final : public Module {
 public:
  /// Initialised as Linear is, with in = in_channels * kernel * kernel.
  Conv2d(std::int64_t in_channels, std::int64_t out_channels, std::int64_t kernel,
         std::int64_t stride = 1, std::int64_t padding = 0, bool bias = true,
         DType dtype = DType::float32, Generator* generator = nullptr);
  Conv2d(Tensor weight, Tensor bias, std::int64_t stride, std::int64_t padding);
  Tensor forward(const Tensor& x) override;

 private:
  std::int64_t stride_;
  std::int64_t padding_;
};

/// BatchNorm1d and BatchNorm2d: weight ones, bias zeros, running mean zeros, running variance ones.
class BatchNorm final : public Module {
 public:
  explicit BatchNorm(std::int64_t channels, DType dtype = DType::float32);
  Tensor forward(const Tensor& x) override;
};

class LayerNorm final : public Module {
 public:
  explicit LayerNorm(std::int64_t width, DType dtype = DType::float32);
  Tensor forward(const Tensor& x) override;
};

/// A weight of ones, and no bias.
class RmsNorm final : public Module {
 public:
  explicit RmsNorm(std::int64_t width, DType dtype = DType::float32);
  Tensor forward(const Tensor& x) override;
};

class GroupNorm final : public Module {
 public:
  GroupNorm(std::int64_t groups, std::int64_t channels, DType dtype = DType::float32);
  Tensor forward(const Tensor& x) override;

 private:
  std::int64_t groups_;
};

enum class PoolKind : std::uint8_t { max, average };

class Pool2d final : public Module {
 public:
  Pool2d(PoolKind kind, std::int64_t kernel, std::int64_t stride, std::int64_t padding = 0)
      : kind_(kind), kernel_(kernel), stride_(stride), padding_(padding) {}
  Tensor forward(const Tensor& x) override;

 private:
  PoolKind kind_;
  std::int64_t kernel_;
  std::int64_t stride_;
  std::int64_t padding_;
};

enum class ActivationKind : std::uint8_t {
  relu,
  relu_in_place,
  gelu,
  silu,
  tanh,
  sigmoid,
  softmax
};

class Activation final : public Module {
 public:
  explicit Activation(ActivationKind kind) : kind_(kind) {}
  Tensor forward(const Tensor& x) override;

 private:
  ActivationKind kind_;
};

enum class RandomKind : std::uint8_t { dropout, rrelu, gaussian_noise };

/// Layers that draw; `amount` is the probability (dropout) or the deviation (gaussian_noise).
class RandomLayer final : public Module {
 public:
  explicit RandomLayer(RandomKind kind, double amount = 0) : kind_(kind), amount_(amount) {}
  Tensor forward(const Tensor& x) override;

 private:
  RandomKind kind_;
  double amount_;
};

class Flatten final : public Module {
 public:
  Tensor forward(const Tensor& x) override;
};

}  // namespace rematch::nn
