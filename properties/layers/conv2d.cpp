#include <algorithm>

#include "engine/kernels/conv2d.h"
#include "properties/layers/blocks.h"
#include "properties/layers/layer.h"
#include "properties/layers/window.h"

namespace rematch {
namespace {

void shape(ShapeWalk& s) {
  const LayerSpec& l = s.spec();
  const auto [h, w] = s.window();
  s.need_features();
  const Shape& x = s.x();
  // The matrix of patches, which a kernel may build, so that a small file cannot ask for it.
  s.product_of(std::array{x[1], l.kernel, l.kernel, h, w});
  s.product_of(std::array{l.features, x[1], l.kernel, l.kernel});
  s.weight_and_bias(Shape{l.features, x[1], l.kernel, l.kernel});
  s.output(std::array{x[0], l.features, h, w});
}

void facts(FactsWriter& w) {
  w.f.backward = BackwardUse::product;
  w.save(FactsWriter::What::operand, 0, FactsWriter::When::parameter_requires_grad, 0);
  w.save(FactsWriter::What::parameter, 0, FactsWriter::When::operand_requires_grad, 0);
  if (!w.host_kernels) return;
  w.f.workspace = w.item * cpu::conv2d_scratch_elements({.n = w.x[0],
                                                         .c = w.x[1],
                                                         .h = w.x[2],
                                                         .w = w.x[3],
                                                         .out_c = w.y[1],
                                                         .kh = w.spec.kernel,
                                                         .kw = w.spec.kernel,
                                                         .stride_h = w.spec.stride,
                                                         .stride_w = w.spec.stride,
                                                         .pad_h = w.spec.padding,
                                                         .pad_w = w.spec.padding});
}

void draw(ModelDraw& m, LayerKind kind) {
  LayerSpec l;
  l.kind = kind;
  l.kernel = m.draw.pick(std::array{1, 2, 3, 3, 3});
  l.padding = m.draw.range(0, 1);
  l.stride = m.draw.chance(85) ? 1 : 2;
  if (l.kernel > std::min(m.x()[2], m.x()[3]) + 2 * l.padding) l.kernel = 1;
  // A kernel of 1 gains only zeros from padding, and repeated padding would grow the image.
  if (l.kernel == 1) l.padding = 0;
  const std::int64_t features = m.draw.chance(60) ? m.x()[1] : m.draw.range(1, 5);
  m.draw_weight(l, std::min(features, ModelDraw::kWidest));
  m.append(l);
}

}  // namespace

namespace rounding {
namespace {

std::vector<Vars> conv2d_bounds(LayerRun& l) {
  struct Tap {
    std::int64_t pixel;
    std::int64_t weight;
  };
  Bounds& t = l.bounds;
  const std::int64_t pixels = l.shape[2] * l.shape[3];
  const std::int64_t window = l.spec.kernel * l.spec.kernel;
  std::vector<std::vector<Tap>> taps(at(l.output[2] * l.output[3]));
  for_each_window(l, [&](std::int64_t to, std::int64_t from, std::int64_t weight) {
    taps[at(to)].push_back({from, weight});
  });
  Vars y;
  for (std::int64_t n = 0; n < l.shape[0]; ++n) {
    for (std::int64_t o = 0; o < l.output[1]; ++o) {
      for (const std::vector<Tap>& here : taps) {
        for (std::int64_t c = 0; c < l.shape[1]; ++c) {
          for (const Tap& tap : here) {
            t.plus_product(l.operands[0][at((n * l.shape[1] + c) * pixels + tap.pixel)],
                           l.parameters[0][at((o * l.shape[1] + c) * window + tap.weight)]);
          }
        }
        if (l.spec.bias) t.plus(l.parameters[1][at(o)]);
        y.push_back(t.sum());
      }
    }
  }
  return {y};
}

}  // namespace
}  // namespace rounding

constinit const Layer conv2d_layer{
    .name = "conv2d",
    .fields = {"features", "kernel", "stride", "padding", "bias", "frozen", "tied_to"},
    .shape = shape,
    .facts = facts,
    .in_blocks = [](const FactsWriter& w) { return w.y[2] * w.y[3] > FirstBlock::kOutputs; },
    .bounds = rounding::conv2d_bounds,
    .low_precision = true,
    .has_parameters = true,
    .overwritable = true,
    .weights = {.convolutional = 1, .images = 75},
    .draw_standard =
        [](ModelDraw& m, LayerSpec& l) {
          l.features = m.draw.range(1, 8);
          l.kernel = 3;
          l.padding = 1;
          return true;
        },
    .draw = draw,
    .standard_floor = 11,
    .wide_floor = 10,
    .repair =
        [](LayerSpec& l, const Shape& x, const Shape&) {
          if (x.rank() == 4) l.kernel = std::min(l.kernel, std::min(x[2], x[3]) + 2 * l.padding);
        },
    .on_rows = "linear",
};

}  // namespace rematch
