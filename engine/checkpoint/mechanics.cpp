#include "engine/checkpoint/mechanics.h"

#include <utility>

#include "engine/ambient/autocast.h"

namespace rematch {

Streams Mechanics::capture_rng(const Ambient& state) const { return state.streams; }

void Mechanics::restore_rng(Ambient& state, const Streams& captured) const {
  state.streams = Streams(captured);
}

void Mechanics::put_back_rng(Ambient& state, Streams surrounding) const {
  state.streams = std::move(surrounding);
}

void Mechanics::restore_autocast(Ambient& state, const Autocast& captured) const {
  if (state.autocast.same_settings(captured)) return;
  Autocast restored = captured.settings();
  if (restored.enabled) restored.cache = std::make_shared<CastCache>();
  state.autocast = std::move(restored);
}

std::vector<Segment> Mechanics::partition(int layers, int segments, LastSegment last) const {
  const int size = layers / segments;
  std::vector<Segment> result;
  result.reserve(static_cast<std::size_t>(segments));
  for (int i = 0; i + 1 < segments; ++i) result.push_back({i * size, (i + 1) * size, true});
  result.push_back({(segments - 1) * size, layers, last == LastSegment::checkpointed});
  return result;
}

Tensor Mechanics::bind_input(const Tensor& saved, bool requires_grad) const {
  Tensor bound = saved.detach();
  if (requires_grad) bound.set_requires_grad(true);
  return bound;
}

Tensor Mechanics::return_gradient(const Tensor& bound) const { return bound.grad(); }

void Mechanics::release(Tensor& recomputed) const { recomputed = Tensor(); }

const Mechanics& correct_mechanics() {
  static const Mechanics instance;
  return instance;
}

}  // namespace rematch
