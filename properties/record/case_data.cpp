#include "properties/record/case_data.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/kernels/random.h"
#include "engine/random/philox.h"
#include "engine/tensor/dispatch.h"
#include "engine/tensor/host_fill.h"
#include "properties/record/direction.h"

namespace rematch {
namespace {

// A multiply-and-shift map of one uniform in (0, 1] to {0, ..., count - 1}.
template <class T>
T bucket(T u, double count) {
  return static_cast<T>(std::min(std::floor(static_cast<double>(u) * count), count - 1));
}

template <class T>
void displace(std::span<T> values, const Displacement& by) {
  if (by.distance == 0) return;
  const std::vector<double> d =
      direction(by.seed, by.array, static_cast<std::int64_t>(values.size()));
  for (std::size_t i = 0; i < d.size(); ++i) values[i] += static_cast<T>(by.distance * d[i]);
}

}  // namespace

void fill_data(Tensor& t, DataKind kind, double low, double high, Generator& generator,
               const Displacement& by) {
  const Generator g = generator;
  generator.draw(t.elements());
  for_floating(t.dtype(), "data", [&]<class T>() {
    const bool integers = kind == DataKind::small_integers;
    fill_on_host<T>(t, [&](std::span<T> out) {
      cpu::fill_uniform<T>(t.elements(), g.seed, g.stream, g.offset,
                           static_cast<T>(integers ? 0 : low), static_cast<T>(integers ? 1 : high),
                           out.data());
      if (integers) {
        for (T& value : out) value = bucket(value, 7) - 3;
      }
      displace(out, by);
    });
  });
}

Tensor converted(const Tensor& t, DType dtype) {
  if (t.dtype() == dtype || !is_floating(t.dtype())) return t;
  return Tensor::from(t.to_vector(), t.shape(), dtype);
}

namespace {

/// Integers in [0, count), as int32.
Tensor draw_classes(const Shape& shape, std::int64_t count, Generator& generator) {
  Tensor t = Tensor::empty(shape, DType::int32, Tag::inputs);
  std::vector<float> u(static_cast<std::size_t>(t.elements()));
  const Generator g = generator;
  generator.draw(t.elements());
  cpu::fill_uniform<float>(t.elements(), g.seed, g.stream, g.offset, 0.0f, 1.0f, u.data());
  fill_on_host<std::int32_t>(t, [&](std::span<std::int32_t> out) {
    std::transform(u.begin(), u.end(), out.begin(), [&](float x) {
      return static_cast<std::int32_t>(bucket(x, static_cast<double>(count)));
    });
  });
  return t;
}

}  // namespace

Tensor make_input(const Case& c, Generator& generator, const Displacement& by) {
  if (const std::int64_t tokens = vocabulary_of(c.layers); tokens > 0) {
    return draw_classes(Shape(c.input), tokens, generator);
  }
  Tensor x = Tensor::empty(Shape(c.input), c.dtype, Tag::inputs);
  if (c.data == DataKind::small_integers) {
    fill_data(x, c.data, 0, 0, generator, by);
    return x;
  }
  const Generator g = generator;
  generator.draw(x.elements());
  for_floating(c.dtype, "data", [&]<class T>() {
    fill_on_host<T>(x, [&](std::span<T> out) {
      cpu::fill_normal<T>(x.elements(), g.seed, g.stream, g.offset, T{0}, T{1}, out.data());
      displace(out, by);
    });
  });
  return x;
}

Tensor make_target(const Case& c, const Shape& output, Generator& generator) {
  if (c.protocol.loss == LossKind::mse) {
    Tensor t = Tensor::empty(output, c.dtype, Tag::inputs);
    fill_data(t, c.data, -1, 1, generator);
    return t;
  }
  return draw_classes({output[0]}, output[1], generator);
}

}  // namespace rematch
