#include "engine/math/delayed_scaling.h"

#include "engine/math/float8.h"
#include "properties/bounds/functions.h"
#include "properties/layers/layer.h"

namespace rematch {

namespace rounding {
namespace {

/// The scale of float8 for the magnitudes of some forwards, as a constant: gradients do not pass
/// it.
Var float8_scale(Bounds& t, const Vars& history) {
  const Var top = t.largest(history);
  if (t.low(top) > 0) return t.leaf(t[t.plus(top, 1 / math::kLargestFloat8).sum()]);
  // Whether it is 0 may be open.
  return t.leaf({1, t.high(top) > 0 ? std::numeric_limits<double>::infinity() : 0});
}

/// Rounding is monotonic: what a number may become lies between what its bounds become.
Vars delayed_float8(LayerRun& l) {
  Bounds& t = l.bounds;
  const Var scale = float8_scale(t, l.buffers[0]);
  const Var factor = reciprocal(t, scale);
  return map(l.operands[0], [&](Var v) {
    const Var exact = t.plus_product(v, factor).sum();
    Bounded number{math::rounded_to_float8(t[exact].value), t[exact].error};
    if (std::isfinite(number.error)) {
      number.error = std::max(math::rounded_to_float8(t.high(exact)) - number.value,
                              number.value - math::rounded_to_float8(t.low(exact)));
    }
    const Var rounded = t.leaf(number);
    return t.rounded(v, t[t.plus_product(rounded, scale).sum()]);
  });
}

Var largest_magnitude(Bounds& t, const Vars& x) {
  return t.largest(map(x, [&](Var v) { return t.rectified(v, -1); }));
}

std::vector<Vars> delayed_scaling_bounds(LayerRun& l) {
  Bounds& t = l.bounds;
  if (l.spec.fp8) {
    Vars y = delayed_float8(l);
    Vars& history = l.buffers[0];
    if (l.train) {
      history.erase(history.begin());
      history.push_back(largest_magnitude(t, l.operands[0]));
    }
    return {y};
  }
  Var& scale = l.buffers[0][0];
  const Var factor = reciprocal(t, scale);
  const Vars& x = l.operands[0];
  Vars y = map(x, [&](Var v) { return t.plus_product(v, factor).sum(); });
  if (l.train) {
    scale = t.plus(scale, 0.5).plus(largest_magnitude(t, x), 0.5).sum();
  }
  return {y};
}

}  // namespace
}  // namespace rounding

constinit const Layer delayed_scaling_layer{
    .name = "delayed_scaling",
    .fields = {"fp8", "eval"},
    .shape =
        [](ShapeWalk& s) {
          if (s.spec().fp8) {
            s.buffer("history", Shape{math::kFloat8History}, 0);
          } else {
            s.buffer("scale", Shape{1}, 1);
          }
          s.same_output();
        },
    .facts =
        [](FactsWriter& w) {
          if (!w.spec.fp8) return w.save_state(w.item);
          // The gradient passes by.
          w.f.state_bytes = math::kFloat8History * w.item;
          w.f.backward = BackwardUse::share;
        },
    .bounds = rounding::delayed_scaling_bounds,
    .stateful = true,
    .reads_state = true,
    .changes_gradients = [](const LayerSpec& l, bool) { return l.fp8; },
    .overwritable = true,
    .weights = {.rows = 9, .sequences = 14, .images = 10},
    .draw =
        [](ModelDraw& m, LayerKind kind) {
          LayerSpec l;
          l.kind = kind;
          l.fp8 = m.draw.chance(50, Feature::fp8);
          m.append(l);
        },
    .wide_floor = 2,
};

}  // namespace rematch
