#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <span>

#include "properties/bounds/functions.h"
#include "properties/layers/layer.h"

namespace rematch {
namespace {

bool draws_jitter(const LayerSpec& l) { return l.p > 0; }

std::int64_t rows_of(const Shape& x) { return x.elements() / x[x.rank() - 1]; }

}  // namespace

namespace rounding {
namespace {

/// The likeliest experts, and whether every implementation chooses these.
struct Choice {
  std::vector<std::size_t> experts;
  bool certain = true;
};

Choice choose(const Bounds& t, const Vars& probabilities, std::size_t top) {
  std::vector<std::size_t> order(probabilities.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return t[probabilities[a]].value > t[probabilities[b]].value;
  });
  Choice choice;
  choice.experts.assign(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(top));
  for (std::size_t i = 0; i < top; ++i) {
    for (std::size_t j = top; j < order.size(); ++j) {
      if (!(t.low(probabilities[order[i]]) > t.high(probabilities[order[j]]))) {
        choice.certain = false;
      }
    }
  }
  return choice;
}

Vars probabilities_of(LayerRun& l, std::span<const Var> x) {
  Bounds& t = l.bounds;
  Vars logits;
  for (std::size_t e = 0; e < at(l.spec.experts); ++e) {
    for (std::size_t f = 0; f < x.size(); ++f) {
      t.plus_product(x[f], l.parameters[0][e * x.size() + f]);
    }
    logits.push_back(t.sum());
  }
  const Exponentials exp = exponentials(t, logits);
  const Var scale = reciprocal(t, exp.sum);
  return map(exp.x, [&](Var v) { return t.plus_product(v, scale).sum(); });
}

Var undecided(LayerRun& l, std::span<const Var> x) {
  Vars of(x.begin(), x.end());
  for (const Vars& p : l.parameters) of.insert(of.end(), p.begin(), p.end());
  return l.bounds.undecided(of);
}

std::vector<Vars> moe_bounds(LayerRun& l) {
  Bounds& t = l.bounds;
  const auto width = static_cast<std::size_t>(l.shape[l.shape.rank() - 1]);
  std::vector<Bounded> rows(at(l.spec.experts));
  Vars y;
  for (std::size_t first = 0; first < l.operands[0].size(); first += width) {
    const std::span<const Var> x = std::span(l.operands[0]).subspan(first, width);
    const Vars probabilities = probabilities_of(l, x);
    const Choice choice = choose(t, probabilities, at(l.spec.top));
    for (const std::size_t e : choice.experts) rows[e].value += 1;
    if (!choice.certain) {
      for (Bounded& n : rows) n.error += 1;
      const Var anything = undecided(l, x);
      for (std::size_t g = 0; g < width; ++g) y.push_back(t.undecided({anything}));
      continue;
    }
    for (std::size_t g = 0; g < width; ++g) {
      Vars outputs;
      for (const std::size_t e : choice.experts) {
        for (std::size_t f = 0; f < width; ++f) {
          t.plus_product(x[f], l.parameters[1][(e * width + g) * width + f]);
        }
        outputs.push_back(t.sum());
      }
      for (std::size_t j = 0; j < outputs.size(); ++j) {
        t.plus_product(probabilities[choice.experts[j]], outputs[j]);
      }
      y.push_back(t.sum());
    }
  }
  for (std::size_t e = 0; l.train && e < rows.size(); ++e) {
    l.buffers[0][e] = t.plus(l.buffers[0][e]).plus(t.leaf(rows[e])).sum();
  }
  return {y};
}

}  // namespace
}  // namespace rounding

constinit const Layer moe_layer{
    .name = "moe",
    // p: of the uniform noise that is added to the logits in training.
    .fields = {"experts", "top", "p", "stream", "frozen", "eval"},
    .shape =
        [](ShapeWalk& s) {
          const LayerSpec& l = s.spec();
          if (s.x().rank() > 3) s.fail("an input of rank 2 or 3", to_string(s.x()));
          if (l.experts < 1 || l.experts > kMaxCaseElements) {
            s.fail("experts of at least 1", std::to_string(l.experts));
          }
          if (l.top < 1 || l.top > l.experts) {
            s.fail("top in 1.." + std::to_string(l.experts), std::to_string(l.top));
          }
          if (!(l.p >= 0 && l.p <= 1e6)) s.fail("p in [0, 1e6]", std::to_string(l.p));
          const std::int64_t width = s.width();
          s.product_of(std::array{l.experts, width, width});
          const double most = 1 / std::sqrt(static_cast<double>(width));
          s.parameter("router", Shape{l.experts, width}, -most, most);
          s.parameter("experts", Shape{l.experts, width, width}, -most, most);
          s.buffer("load", Shape{l.experts}, 0);
          s.count(std::array{rows_of(s.x()), l.experts});
          s.count(std::array{rows_of(s.x()), l.top, width});
          s.same_output();
        },
    .facts =
        [](FactsWriter& w) {
          using What = FactsWriter::What;
          using When = FactsWriter::When;
          const std::int64_t rows = rows_of(w.x);
          if (w.train && draws_jitter(w.spec)) w.f.drawn = rows * w.spec.experts;
          w.save(What::operand, 0, When::parameter_requires_grad, 0);
          w.save(What::parameter, 0, When::operand_requires_grad, 0);
          w.save(What::parameter, 1, When::operand_requires_grad, 0);
          // Probabilities, who was chosen, and their outputs.
          w.save_own(rows * w.spec.experts * w.item);
          w.save_own(rows * w.spec.top * static_cast<std::int64_t>(sizeof(std::int32_t)));
          w.save_own(w.x.elements() * w.spec.top * w.item);
        },
    .bounds = rounding::moe_bounds,
    .draws = draws_jitter,
    .has_products = true,
    .has_parameters = true,
    .stateful = true,
    .overwritable = true,
    .weights = {.rows = 8, .sequences = 8},
    .draw =
        [](ModelDraw& m, LayerKind kind) {
          LayerSpec l;
          l.kind = kind;
          l.experts = m.draw.range(2, 4);
          l.top = m.draw.range(1, 2);
          l.p = m.draw.pick(std::array{0.0, 0.25});
          l.stream = m.draw_stream();
          m.append(l);
        },
    .wide_floor = 1,
    .repair = [](LayerSpec& l, const Shape& /*x*/,
                 const Shape& /*other*/) { l.top = std::min(l.top, l.experts); },
};

}  // namespace rematch
