// How the engine runs each kind of layer.
#include <stdexcept>
#include <string>
#include <utility>

#include "engine/ops/activation.h"
#include "engine/ops/arithmetic.h"
#include "engine/ops/attention.h"
#include "engine/ops/batch_norm.h"
#include "engine/ops/conv2d.h"
#include "engine/ops/delayed_scaling.h"
#include "engine/ops/dropout.h"
#include "engine/ops/embedding.h"
#include "engine/ops/group_norm.h"
#include "engine/ops/join.h"
#include "engine/ops/kv_cache.h"
#include "engine/ops/layer_norm.h"
#include "engine/ops/linear.h"
#include "engine/ops/moe.h"
#include "engine/ops/noise.h"
#include "engine/ops/pool2d.h"
#include "engine/ops/recurrent.h"
#include "engine/ops/rms_norm.h"
#include "engine/ops/rotary.h"
#include "engine/ops/spectral_norm.h"
#include "engine/ops/stochastic_depth.h"
#include "engine/ops/view.h"
#include "properties/layers/custom_layer.h"
#include "properties/layers/layer.h"
#include "properties/subjects/engine_model.h"

namespace rematch {

Tensors EngineModel::apply(int layer, const LayerSpec& spec, const Tensors& operands) {
  const bool train = trains_in(spec, train_);
  const RandomOptions random{.train = train, .stream = spec.stream};
  const Tensor& x = operands[0];
  const auto parameter = [&](std::size_t i) { return parameter_for(layer, i); };
  const auto buffer = [&](std::size_t i) -> Tensor& {
    return buffers_[static_cast<std::size_t>(first_buffer_[static_cast<std::size_t>(layer)]) + i];
  };
  switch (spec.kind) {
    case LayerKind::embedding:
      return {embedding(x, parameter(0))};
    case LayerKind::linear:
      return {linear(x, parameter(0), parameter(1))};
    case LayerKind::conv2d:
      return {conv2d(x, parameter(0), parameter(1), spec.stride, spec.padding)};
    case LayerKind::max_pool2d:
      return {max_pool2d(x, spec.kernel, spec.stride, spec.padding)};
    case LayerKind::avg_pool2d:
      return {avg_pool2d(x, spec.kernel, spec.stride, spec.padding)};
    case LayerKind::batch_norm:
      return {batch_norm(x, parameter(0), parameter(1), buffer(0), buffer(1), {.train = train})};
    case LayerKind::layer_norm:
      return {layer_norm(x, parameter(0), parameter(1))};
    case LayerKind::group_norm:
      return {group_norm(x, spec.groups, parameter(0), parameter(1))};
    case LayerKind::rms_norm:
      return {rms_norm(x, parameter(0))};
    case LayerKind::relu: {
      if (!spec.in_place) return {relu(x)};
      Tensor same = x;
      return {relu_(same)};
    }
    case LayerKind::gelu:
      return {gelu(x)};
    case LayerKind::silu:
      return {silu(x)};
    case LayerKind::tanh:
      return {rematch::tanh(x)};
    case LayerKind::sigmoid:
      return {sigmoid(x)};
    case LayerKind::softmax:
      return {softmax(x)};
    case LayerKind::dropout:
      return {dropout(x, spec.p, random)};
    case LayerKind::delayed_scaling:
      return {spec.fp8 ? delayed_float8(x, buffer(0), train)
                       : delayed_scaling(x, buffer(0), train)};
    case LayerKind::spectral_norm:
      return {spectral_norm(x, parameter(0), parameter(1), buffer(0), buffer(1), train)};
    case LayerKind::kv_cache:
      return {kv_cache(x, buffer(0), train)};
    case LayerKind::rrelu:
      return {rrelu(x, 1.0 / 8, 1.0 / 3, random)};
    case LayerKind::gaussian_noise:
      return {gaussian_noise(x, spec.p, random)};
    case LayerKind::flatten:
      return {flatten(x)};
    case LayerKind::add:
      return {add(x, operands[1])};
    case LayerKind::mul:
      return {mul(x, operands[1])};
    case LayerKind::attention:
      return {attention(x, operands[1],
                        {.heads = spec.heads,
                         .causal = spec.causal,
                         .fused = spec.fused,
                         .p = spec.p,
                         .random = random})};
    case LayerKind::hooked:
      return {hooked(x, spec.p)};
    case LayerKind::rotary:
      return {rotary(x, spec.features, spec.heads)};
    case LayerKind::gru:
      return {gru(x, {parameter(0), parameter(1), parameter(2), parameter(3)})};
    case LayerKind::lstm:
      return {lstm(x, {parameter(0), parameter(1), parameter(2), parameter(3)})};
    case LayerKind::moe:
      return {moe(x, parameter(0), parameter(1), buffer(0),
                  {.top = spec.top, .jitter = spec.p, .random = random})};
    case LayerKind::stochastic_depth:
      return {stochastic_depth(x, parameter(0), spec.p, random)};
    case LayerKind::early_exit:
      return {early_exit(x, parameter(0))};
    case LayerKind::concat:
      return {concat(x, operands[1], features_dimension(x.shape()))};
    case LayerKind::split: {
      auto parts = split(x, spec.features, features_dimension(x.shape()));
      return {std::move(parts[0]), std::move(parts[1])};
    }
    case LayerKind::duplicate:
      return {x, x};
    case LayerKind::custom:
      throw std::invalid_argument("[engine] layer " + std::to_string(layer) + " (" +
                                  spec.layer->name + ") is known to another subject only");
  }
  return operands;
}

}  // namespace rematch
