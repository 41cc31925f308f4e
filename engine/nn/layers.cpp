#include "engine/nn/layers.h"

#include <cmath>

#include "engine/autograd/node.h"
#include "engine/kernels/random.h"
#include "engine/ops/activation.h"
#include "engine/ops/batch_norm.h"
#include "engine/ops/conv2d.h"
#include "engine/ops/dropout.h"
#include "engine/ops/group_norm.h"
#include "engine/ops/layer_norm.h"
#include "engine/ops/linear.h"
#include "engine/ops/noise.h"
#include "engine/ops/pool2d.h"
#include "engine/ops/rms_norm.h"
#include "engine/ops/view.h"
#include "engine/tensor/dispatch.h"
#include "engine/tensor/kernel.h"

namespace rematch::nn {
namespace {

Tensor constant_parameter(std::int64_t n, double value, DType dtype) {
  return Tensor::full({n}, dtype, value, Tag::parameters).set_requires_grad(true);
}

void name_roles(Tensors& parameters) {
  constexpr const char* kRoles[] = {"weight", "bias"};
  for (std::size_t i = 0; i < parameters.size(); ++i) parameters[i].set_name(kRoles[i]);
}

void initialise(Tensors& parameters, std::int64_t fan_in, Generator* generator) {
  if (generator == nullptr) return;
  for (Tensor& p : parameters) {
    if (p.defined()) fill_uniform(p, 1.0 / std::sqrt(static_cast<double>(fan_in)), *generator);
  }
}

// parameters() holds no undefined entries: a layer without bias has one parameter.
Tensor bias_of(const Tensors& parameters) {
  return parameters.size() > 1 ? parameters[1] : Tensor();
}

}  // namespace

Tensor parameter(const Shape& shape, DType dtype) {
  return Tensor::empty(shape, dtype, Tag::parameters).set_requires_grad(true);
}

void fill_uniform(Tensor& t, double bound, Generator& generator) {
  const Generator before = generator;
  generator.draw(t.elements());
  t.storage()->before_write();
  for_floating(t.dtype(), "fill_uniform", [&]<class T>() {
    REMATCH_KERNEL(t, fill_uniform<T>, t.elements(), before.seed, before.stream, before.offset,
                   static_cast<T>(-bound), static_cast<T>(bound), t.data<T>());
  });
  mark_written(t);
}

void fill_normal(Tensor& t, Generator& generator) {
  const Generator before = generator;
  generator.draw(t.elements());
  t.storage()->before_write();
  for_floating(t.dtype(), "fill_normal", [&]<class T>() {
    REMATCH_KERNEL(t, fill_normal<T>, t.elements(), before.seed, before.stream, before.offset, T{0},
                   T{1}, t.data<T>());
  });
  mark_written(t);
}

Linear::Linear(std::int64_t in, std::int64_t out, bool bias, DType dtype, Generator* generator) {
  parameters_.push_back(parameter({out, in}, dtype));
  if (bias) parameters_.push_back(parameter({out}, dtype));
  name_roles(parameters_);
  initialise(parameters_, in, generator);
}

Linear::Linear(Tensor weight, Tensor bias) {
  parameters_.push_back(std::move(weight));
  if (bias.defined()) parameters_.push_back(std::move(bias));
}

Tensor Linear::forward(const Tensor& x) { return linear(x, parameters_[0], bias_of(parameters_)); }

Conv2d::Conv2d(std::int64_t in_channels, std::int64_t out_channels, std::int64_t kernel,
               std::int64_t stride, std::int64_t padding, bool bias, DType dtype,
               Generator* generator)
    : stride_(stride), padding_(padding) {
  parameters_.push_back(parameter({out_channels, in_channels, kernel, kernel}, dtype));
  if (bias) parameters_.push_back(parameter({out_channels}, dtype));
  name_roles(parameters_);
  initialise(parameters_, in_channels * kernel * kernel, generator);
}

Conv2d::Conv2d(Tensor weight, Tensor bias, std::int64_t stride, std::int64_t padding)
    : stride_(stride), padding_(padding) {
  parameters_.push_back(std::move(weight));
  if (bias.defined()) parameters_.push_back(std::move(bias));
}

Tensor Conv2d::forward(const Tensor& x) {
  return conv2d(x, parameters_[0], bias_of(parameters_), stride_, padding_);
}

BatchNorm::BatchNorm(std::int64_t channels, DType dtype) {
  parameters_.push_back(constant_parameter(channels, 1, dtype));
  parameters_.push_back(constant_parameter(channels, 0, dtype));
  name_roles(parameters_);
  buffers_.push_back(Tensor::zeros({channels}, dtype, Tag::state));
  buffers_.push_back(Tensor::ones({channels}, dtype, Tag::state));
}

Tensor BatchNorm::forward(const Tensor& x) {
  return batch_norm(x, parameters_[0], parameters_[1], buffers_[0], buffers_[1],
                    {.train = training_});
}

LayerNorm::LayerNorm(std::int64_t width, DType dtype) {
  parameters_.push_back(constant_parameter(width, 1, dtype));
  parameters_.push_back(constant_parameter(width, 0, dtype));
  name_roles(parameters_);
}

Tensor LayerNorm::forward(const Tensor& x) { return layer_norm(x, parameters_[0], parameters_[1]); }

RmsNorm::RmsNorm(std::int64_t width, DType dtype) {
  parameters_.push_back(constant_parameter(width, 1, dtype));
  name_roles(parameters_);
}

Tensor RmsNorm::forward(const Tensor& x) { return rms_norm(x, parameters_[0]); }

GroupNorm::GroupNorm(std::int64_t groups, std::int64_t channels, DType dtype) : groups_(groups) {
  parameters_.push_back(constant_parameter(channels, 1, dtype));
  parameters_.push_back(constant_parameter(channels, 0, dtype));
  name_roles(parameters_);
}

Tensor GroupNorm::forward(const Tensor& x) {
  return group_norm(x, groups_, parameters_[0], parameters_[1]);
}

Tensor Pool2d::forward(const Tensor& x) {
  return kind_ == PoolKind::max ? max_pool2d(x, kernel_, stride_, padding_)
                                : avg_pool2d(x, kernel_, stride_, padding_);
}

Tensor Activation::forward(const Tensor& x) {
  switch (kind_) {
    case ActivationKind::relu:
      return relu(x);
    case ActivationKind::relu_in_place: {
      Tensor same = x;
      return relu_(same);
    }
    case ActivationKind::gelu:
      return gelu(x);
    case ActivationKind::silu:
      return silu(x);
    case ActivationKind::tanh:
      return rematch::tanh(x);
    case ActivationKind::sigmoid:
      return sigmoid(x);
    case ActivationKind::softmax:
      return softmax(x);
  }
  return x;
}

Tensor RandomLayer::forward(const Tensor& x) {
  const RandomOptions options{.train = training_};
  switch (kind_) {
    case RandomKind::dropout:
      return dropout(x, amount_, options);
    case RandomKind::rrelu:
      return rrelu(x, 1.0 / 8, 1.0 / 3, options);
    case RandomKind::gaussian_noise:
      return gaussian_noise(x, amount_, options);
  }
  return x;
}

Tensor Flatten::forward(const Tensor& x) { return flatten(x); }

}  // namespace rematch::nn
