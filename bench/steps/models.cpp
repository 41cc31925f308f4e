#include "bench/steps/models.h"

#include <array>
#include <utility>

#include "engine/nn/layers.h"
#include "engine/ops/activation.h"
#include "engine/ops/arithmetic.h"
#include "engine/ops/attention.h"

namespace rematch::bench {
namespace {

using Layers = std::vector<std::shared_ptr<nn::Module>>;

Tensor drawn(const Shape& shape, DType dtype, Generator& g) {
  Tensor t = Tensor::empty(shape, dtype, Tag::inputs);
  nn::fill_normal(t, g);
  return t;
}

/// Appends layers that draw their weights one after the other.
class Maker {
 public:
  Maker(std::uint64_t seed, DType dtype) : dtype_(dtype), g_{seed, 0, 0} {}

  void linear(std::int64_t in, std::int64_t out) {
    add<nn::Linear>("linear", in, out, true, dtype_, &g_);
  }
  void conv(std::int64_t in, std::int64_t out) {
    add<nn::Conv2d>("conv2d", in, out, std::int64_t{3}, std::int64_t{1}, std::int64_t{1}, true,
                    dtype_, &g_);
  }
  void relu() { add<nn::Activation>("relu", nn::ActivationKind::relu); }
  void dropout(double p) { add<nn::RandomLayer>("dropout", nn::RandomKind::dropout, p); }
  void halve() {
    add<nn::Pool2d>("max_pool2d", nn::PoolKind::max, std::int64_t{2}, std::int64_t{2});
  }
  template <class Layer, class... Args>
  void add(const char* name, Args... args) {
    layers_.push_back(std::make_shared<Layer>(args...));
    names_.emplace_back(name);
  }
  DType dtype() const { return dtype_; }
  Generator& generator() { return g_; }

  Model model(const Shape& input, const Shape& target) {
    nn::Sequential net(std::move(layers_));
    Tensor x = drawn(input, dtype_, g_);
    return {std::move(net), std::move(names_), std::move(x), drawn(target, dtype_, g_)};
  }

 private:
  DType dtype_;
  Generator g_;
  Layers layers_;
  std::vector<std::string> names_;
};

Model mymodel(std::int64_t batch, DType dtype) {
  Maker m(1, dtype);
  m.linear(1024, 1024);
  m.relu();
  m.linear(1024, 1024);
  m.relu();
  m.linear(1024, 10);
  return m.model({batch, 1024}, {batch, 10});
}

Model deep64(std::int64_t batch, DType dtype) {
  Maker m(2, dtype);
  for (int i = 0; i < 64; ++i) {
    m.linear(256, 256);
    m.relu();
    m.dropout(0.1);
  }
  return m.model({batch, 256}, {batch, 256});
}

Model cifar(std::int64_t batch, DType dtype) {
  Maker m(3, dtype);
  for (const std::int64_t in : {3, 64}) {
    const std::int64_t middle = in == 3 ? 32 : 64;
    m.conv(in, middle);
    m.relu();
    m.conv(middle, 64);
    m.relu();
    m.halve();
    m.dropout(0.25);
  }
  m.add<nn::Flatten>("flatten");
  m.linear(64 * 8 * 8, 512);
  m.relu();
  m.dropout(0.5);
  m.linear(512, 10);
  return m.model({batch, 3, 32, 32}, {batch, 10});
}

constexpr std::int64_t kChannels = 16;

/// x + norm(conv(relu(norm(conv(x))))), then a ReLU.
class ResidualBlock final : public nn::Module {
 public:
  ResidualBlock(DType dtype, Generator* g)
      : first_(kChannels, kChannels, 3, 1, 1, false, dtype, g),
        first_norm_(kChannels, dtype),
        second_(kChannels, kChannels, 3, 1, 1, false, dtype, g),
        second_norm_(kChannels, dtype) {
    for (const nn::Module* m : parts()) {
      parameters_.insert(parameters_.end(), m->parameters().begin(), m->parameters().end());
      buffers_.insert(buffers_.end(), m->buffers().begin(), m->buffers().end());
    }
  }
  Tensor forward(const Tensor& x) override {
    const Tensor inner = relu(first_norm_.forward(first_.forward(x)));
    return relu(rematch::add(x, second_norm_.forward(second_.forward(inner))));
  }

 private:
  std::array<const nn::Module*, 4> parts() const {
    return {&first_, &first_norm_, &second_, &second_norm_};
  }

  nn::Conv2d first_;
  nn::BatchNorm first_norm_;
  nn::Conv2d second_;
  nn::BatchNorm second_norm_;
};

Model residual32(std::int64_t batch, DType dtype) {
  Maker m(4, dtype);
  m.conv(3, kChannels);
  for (int block = 0; block < 15; ++block)
    m.add<ResidualBlock>("residual block", m.dtype(), &m.generator());
  m.halve();
  m.add<nn::Flatten>("flatten");
  m.linear(kChannels * 8 * 8, 10);
  return m.model({batch, 3, 16, 16}, {batch, 10});
}

constexpr std::int64_t kWidth = 256;
constexpr std::int64_t kTokens = 256;

/// Half a block of a transformer: x + inner(norm(x)).
class ResidualHalf : public nn::Module {
 public:
  Tensor forward(const Tensor& x) override { return rematch::add(x, inner(norm_.forward(x))); }

 protected:
  explicit ResidualHalf(DType dtype) : norm_(kWidth, dtype) { own(norm_); }
  void own(const nn::Module& part) {
    parameters_.insert(parameters_.end(), part.parameters().begin(), part.parameters().end());
  }

 private:
  virtual Tensor inner(const Tensor& x) = 0;

  nn::LayerNorm norm_;
};

class AttentionHalf final : public ResidualHalf {
 public:
  AttentionHalf(DType dtype, Generator* g)
      : ResidualHalf(dtype),
        queries_(kWidth, kWidth, true, dtype, g),
        memory_(kWidth, 2 * kWidth, true, dtype, g),
        output_(kWidth, kWidth, true, dtype, g) {
    for (const nn::Module* part : {&queries_, &memory_, &output_}) own(*part);
  }

 private:
  Tensor inner(const Tensor& x) override {
    const AttentionOptions options{.heads = 8, .causal = true, .fused = true};
    return output_.forward(attention(queries_.forward(x), memory_.forward(x), options));
  }

  nn::Linear queries_;
  nn::Linear memory_;
  nn::Linear output_;
};

class PerceptronHalf final : public ResidualHalf {
 public:
  PerceptronHalf(DType dtype, Generator* g)
      : ResidualHalf(dtype),
        first_(kWidth, 4 * kWidth, true, dtype, g),
        second_(4 * kWidth, kWidth, true, dtype, g) {
    for (const nn::Module* part : {&first_, &second_}) own(*part);
  }

 private:
  Tensor inner(const Tensor& x) override { return second_.forward(gelu(first_.forward(x))); }

  nn::Linear first_;
  nn::Linear second_;
};

Model transformer(std::int64_t batch, DType dtype) {
  Maker m(6, dtype);
  for (int block = 0; block < 4; ++block) {
    m.add<AttentionHalf>("attention", m.dtype(), &m.generator());
    m.add<PerceptronHalf>("perceptron", m.dtype(), &m.generator());
  }
  return m.model({batch, kTokens, kWidth}, {batch, kTokens, kWidth});
}

Model tiny(std::int64_t batch, DType dtype) {
  Maker m(5, dtype);
  for (int i = 0; i < 4; ++i) {
    m.linear(8, 8);
    m.relu();
  }
  return m.model({batch, 8}, {batch, 8});
}

}  // namespace

std::span<const NamedModel> models() {
  static constexpr std::array kModels{
      NamedModel{"mymodel", 32, mymodel},        NamedModel{"cifar", 64, cifar},
      NamedModel{"deep64", 64, deep64},          NamedModel{"residual32", 16, residual32},
      NamedModel{"transformer", 8, transformer}, NamedModel{"tiny", 4, tiny}};
  return kModels;
}

std::int64_t forward_flops(const nn::Module& layer, const Tensor& y) {
  const Shape& out = y.shape();
  const std::int64_t rows = y.elements() / out[out.rank() == 3 ? 2 : 1];
  std::int64_t products = 0;
  for (const Tensor& p : layer.parameters()) {
    // Every row of an output, a pixel of an image too, is multiplied by the whole weight:
    // convolutions inside a block keep their resolution here.
    if (p.shape().rank() >= 2) products += 2 * rows * p.elements();
  }
  if (dynamic_cast<const AttentionHalf*>(&layer) != nullptr) {
    // Scores, and what they weigh, of all pairs of tokens: causal attention computes them all.
    products += 2 * 2 * y.elements() * kTokens;
  }
  return products > 0 ? products : y.elements();
}

}  // namespace rematch::bench
