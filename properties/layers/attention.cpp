#include "properties/layers/attention.h"
#include "properties/layers/blocks.h"

#include <algorithm>
#include <array>
#include <vector>

#include "properties/bounds/functions.h"
#include "properties/layers/layer.h"

namespace rematch {
namespace {

bool fits(std::int64_t heads, const Shape& x, const Shape& memory) {
  if (x.rank() != 3 || memory.rank() != 3 || x[0] != memory[0] || x[2] % heads != 0) return false;
  const std::int64_t one_head = 2 * (x[2] / heads);
  return memory[2] % one_head == 0 && heads % (memory[2] / one_head) == 0;
}

bool draws_mask(const LayerSpec& l) { return l.p > 0; }

/// The numbers of heads that the two can have.
std::vector<std::int64_t> heads_for(const Shape& x, const Shape& memory) {
  std::vector<std::int64_t> found;
  for (std::int64_t heads = 1; x.rank() == 3 && heads <= x[2]; ++heads) {
    if (fits(heads, x, memory)) found.push_back(heads);
  }
  return found;
}

void draw_attention(ModelDraw& m, LayerKind kind) {
  DrawSource& draw = m.draw;
  // Queries for x as the memory.
  if (m.width() % 2 == 0 && draw.chance(60, feature_of(LayerKind::linear))) {
    const std::int64_t half = m.width() / 2;
    const std::int64_t memory_heads = half % 2 == 0 ? draw.range(1, 2) : 1;
    const std::int64_t size = half / memory_heads;
    const std::int64_t most = std::max<std::int64_t>(1, ModelDraw::kWidest / half);
    const bool rotates = size % 2 == 0 && draw.chance(50, feature_of(LayerKind::rotary));
    const auto rotate = [&](std::int64_t features) {
      LayerSpec l;
      l.kind = LayerKind::rotary;
      l.features = features;
      l.heads = features / size;
      m.append(l);
    };
    if (rotates) rotate(half);
    LayerSpec queries;
    queries.kind = LayerKind::linear;
    m.draw_weight(queries, memory_heads * size *
                               draw.range(1, static_cast<int>(std::min<std::int64_t>(most, 3))));
    m.append(queries);
    if (rotates && m.width() % size == 0) rotate(m.width());
  }
  m.append_joined(
      kind, [](const Shape&, const Shape&) { return true; },
      [](ModelDraw& model, LayerSpec& l, const Shape& memory) {
        DrawSource& source = model.draw;
        const auto heads = heads_for(model.x(), memory);
        l.heads = heads[source.below(static_cast<std::uint32_t>(heads.size()))];
        l.causal = source.chance(50) && memory[1] >= model.x()[1];
        l.fused = source.chance(50);
        l.p = source.pick(std::array{0.0, 0.0, 0.1, 0.5});
        l.stream = model.draw_stream();
      });
}

}  // namespace

math::AttentionShape attention_shape(const LayerSpec& spec, const Shape& x, const Shape& memory) {
  const std::int64_t size = x[2] / spec.heads;
  return {.batch = x[0],
          .queries = x[1],
          .keys = memory[1],
          .heads = spec.heads,
          .memory_heads = memory[2] / (2 * size),
          .size = size,
          .causal = spec.causal};
}

namespace rounding {
namespace {

/// Scores are sums of products times a constant, which rule 1 covers.
std::vector<Vars> attention_bounds(LayerRun& l) {
  Bounds& t = l.bounds;
  const math::AttentionShape s = attention_shape(l.spec, l.shape, l.other);
  const auto factor = s.scale<double>();
  Vars y(l.operands[0].size());
  for (std::int64_t row = 0; row < s.rows(); ++row) {
    const std::int64_t i = row % s.queries;
    const std::int64_t h = row / s.queries % s.heads;
    const std::int64_t b = row / s.queries / s.heads;
    Vars scores;
    for (std::int64_t j = 0; j < s.keys && s.sees(i, j); ++j) {
      for (std::int64_t c = 0; c < s.size; ++c) {
        t.plus_product(l.operands[0][at(s.query_at(b, i, h) + c)],
                       l.operands[1][at(s.key_at(b, j, h) + c)], factor);
      }
      scores.push_back(t.sum());
    }
    const Exponentials e = exponentials(t, scores);
    const Var scale = reciprocal(t, e.sum);
    const Vars probabilities = map(e.x, [&](Var v) { return t.plus_product(v, scale).sum(); });
    for (std::int64_t c = 0; c < s.size; ++c) {
      for (std::size_t j = 0; j < probabilities.size(); ++j) {
        const std::int64_t value = s.key_at(b, static_cast<std::int64_t>(j), h) + s.to_value();
        t.plus_product(probabilities[j], l.operands[1][at(value + c)]);
      }
      y[at(s.query_at(b, i, h) + c)] = t.sum();
    }
  }
  return {y};
}

}  // namespace
}  // namespace rounding

constinit const Layer attention_layer{
    .name = "attention",
    // The first half of the second operand's features are keys, the other
    // values, of as many heads as that makes.
    .fields = {"heads", "causal", "fused", "p", "stream", "eval", "from"},
    .operands = 2,
    .shape =
        [](ShapeWalk& s) {
          s.need_rank(3);
          const LayerSpec& l = s.spec();
          const Shape& memory = s.operand(1);
          if (!(l.p >= 0 && l.p < 1)) s.fail("p in [0, 1)", std::to_string(l.p));
          if (l.heads < 1 || s.x()[2] % l.heads != 0) {
            s.fail("heads that divide " + std::to_string(s.x()[2]) + " features",
                   std::to_string(l.heads));
          }
          if (!fits(l.heads, s.x(), memory)) {
            s.fail("a second operand of the same batch with keys and values for a divisor of " +
                       std::to_string(l.heads) + " heads of " + std::to_string(s.x()[2] / l.heads) +
                       " features",
                   to_string(memory));
          }
          if (l.causal && memory[1] < s.x()[1]) {
            s.fail("as many keys as queries where it is causal", to_string(memory));
          }
          s.count(std::array{s.x()[0], l.heads, s.x()[1], memory[1]});
          s.same_output();
        },
    .fits = [](const Shape& x, const Shape& other) { return !heads_for(x, other).empty(); },
    .facts =
        [](FactsWriter& w) {
          using What = FactsWriter::What;
          const math::AttentionShape s = attention_shape(w.spec, w.x, w.operand(1));
          const bool drops = w.train && draws_mask(w.spec);
          if (drops) w.f.drawn = s.scores();
          w.save(What::operand, 0);
          w.save(What::operand, 1);
          if (w.spec.fused) {
            w.save(What::output);
            w.save_own(s.rows() * w.item);
            return;
          }
          w.save_own(s.scores() * w.item);
          // The mask, a byte a pair.
          if (drops) w.save_own(s.scores());
        },
    .in_blocks = [](const FactsWriter& w) { return w.x[1] > FirstBlock::kQueries; },
    .bounds = rounding::attention_bounds,
    .draws = draws_mask,
    .has_products = true,
    .weights = {.sequences = 40},
    .draw = draw_attention,
    .wide_floor = 3.5,
    .repair =
        [](LayerSpec& l, const Shape& x, const Shape& memory) {
          const auto heads = heads_for(x, memory);
          const bool fits = std::find(heads.begin(), heads.end(), l.heads) != heads.end();
          if (!fits && !heads.empty()) l.heads = heads.front();
          if (memory.rank() == 3 && x.rank() == 3 && memory[1] < x[1]) l.causal = false;
        },
    .on_rows = "mul",
};

}  // namespace rematch
