#include "engine/checkpoint/mechanics.h"

#include <stdexcept>
#include <string>
#include <utility>

#include "engine/autograd/autocast.h"
#include "engine/autograd/backward.h"
#include "engine/checkpoint/checkpoint.h"

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

Tensor Mechanics::recall_state(std::span<const Tensor> read, std::size_t index,
                               const Tensor& /*now*/) const {
  return read[index];
}

std::vector<Segment> Mechanics::partition(int layers, int segments, LastSegment last) const {
  const int size = layers / segments;
  std::vector<Segment> result;
  result.reserve(static_cast<std::size_t>(segments));
  for (int i = 0; i + 1 < segments; ++i) result.push_back({i * size, (i + 1) * size, true});
  result.push_back({(segments - 1) * size, layers, last == LastSegment::checkpointed});
  return result;
}

Tensors Mechanics::bind_inputs(std::span<const Tensor> saved,
                               const std::vector<bool>& requires_grad) const {
  Tensors bound;
  bound.reserve(saved.size());
  for (std::size_t i = 0; i < saved.size(); ++i) {
    bound.push_back(saved[i].detach());
    if (requires_grad[i]) bound.back().set_requires_grad(true);
  }
  return bound;
}

bool Mechanics::ends_recomputation(int saved, int expected) const { return saved == expected; }

std::uint64_t Mechanics::key_of_recomputation(std::uint64_t backward) const { return backward; }

bool Mechanics::drops_at_end() const { return true; }

bool Mechanics::compares_versions() const { return true; }

void Mechanics::differentiate(Tensors outputs, std::span<Tensor> gradients,
                              std::span<const Tensor> /*bound*/) const {
  Tensors roots;
  Tensors given;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (!gradients[i].defined() || !outputs[i].requires_grad()) continue;
    roots.push_back(std::move(outputs[i]));
    given.push_back(std::move(gradients[i]));
  }
  outputs.clear();
  if (roots.empty()) {
    throw std::invalid_argument(
        "[checkpoint] none of the outputs that require grad in the recomputation received a "
        "gradient: "
        "this checkpoint() is not necessary");
  }
  backward(roots, given);
}

Tensor Mechanics::return_gradient(std::span<const Tensor> bound, std::size_t index) const {
  return bound[index].grad();
}

void Mechanics::release(Tensor& recomputed) const { recomputed = Tensor(); }

const Mechanics& correct_mechanics() {
  static const Mechanics instance;
  return instance;
}

}  // namespace rematch
