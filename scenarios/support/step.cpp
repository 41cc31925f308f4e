#include "scenarios/support/step.h"

namespace rematch::scenarios {

ModulePtr linear_layer(std::int64_t in, std::int64_t out, Generator& generator) {
  return std::make_shared<nn::Linear>(in, out, true, DType::float32, &generator);
}

ModulePtr activation(nn::ActivationKind kind) { return std::make_shared<nn::Activation>(kind); }

Tensor uniform_parameter(const Shape& shape, double bound, Generator& generator) {
  Tensor t = nn::parameter(shape, DType::float32);
  nn::fill_uniform(t, bound, generator);
  return t;
}

Tensor normal_input(const Shape& shape, Generator& generator) {
  Tensor t = Tensor::empty(shape, DType::float32, Tag::inputs);
  nn::fill_normal(t, generator);
  return t;
}

std::vector<Function> counting(std::span<const Function> functions, std::vector<int>& order) {
  std::vector<Function> result;
  for (std::size_t i = 0; i < functions.size(); ++i) {
    result.emplace_back([f = functions[i], i, &order](const Tensors& inputs) {
      order.push_back(static_cast<int>(i));
      return f(inputs);
    });
  }
  return result;
}

Tensor run_regions(std::span<const Function> functions, std::span<const Region> regions,
                   const Tensor& x, const CheckpointOptions& options) {
  Tensors values{x};
  std::size_t next = 0;
  const auto run_until = [&](std::size_t end) {
    for (; next < end; ++next) values = functions[next](values);
  };
  for (const Region& region : regions) {
    run_until(region.begin);
    const auto first = functions.begin() + static_cast<std::ptrdiff_t>(region.begin);
    const auto last = functions.begin() + static_cast<std::ptrdiff_t>(region.end);
    const Function part = [inside = std::vector<Function>(first, last)](const Tensors& in) {
      Tensors out = in;
      for (const Function& f : inside) out = f(out);
      return out;
    };
    values = checkpoint(part, values, options);
    next = region.end;
  }
  run_until(functions.size());
  return values[0];
}

std::vector<std::byte> bits_of(std::span<const Tensor> tensors) {
  std::vector<std::byte> bits;
  for (const Tensor& t : tensors) {
    if (t.defined()) bits.insert(bits.end(), t.raw(), t.raw() + t.bytes());
  }
  return bits;
}

Tensors gradients_of(std::span<const Tensor> leaves) {
  Tensors gradients;
  for (const Tensor& t : leaves) gradients.push_back(t.grad());
  return gradients;
}

}  // namespace rematch::scenarios
