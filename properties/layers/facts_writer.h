#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/math/dtype.h"
#include "engine/tensor/shape.h"
#include "properties/layers/facts.h"
#include "properties/layers/geometry.h"
#include "properties/layers/spec.h"

namespace rematch {

/// The layer at hand, as Layer::facts() wants it, and where its facts go.
class FactsWriter {
 public:
  using What = SavedTensorFact::What;
  using When = SavedTensorFact::When;

  /// Layer number `layer` of a valid model on `model_input`. `on_host`: it runs on the CPU, with
  /// workspace from the ledger. All must outlive this.
  FactsWriter(const std::vector<LayerSpec>& layers, int layer, const Shape& model_input,
              const Geometry& geometry, bool training, DType dtype, bool on_host, Facts& facts)
      : spec(layers[static_cast<std::size_t>(layer)]),
        train(trains_in(spec, training)),
        item(static_cast<std::int64_t>(size_of(dtype))),
        x(geometry.shape_of({layer - 1, 0}, model_input)),
        y(geometry.outputs[static_cast<std::size_t>(layer)][0]),
        host_kernels(on_host),
        layer_(layer),
        input_(model_input),
        geometry_(geometry),
        facts_(facts) {
    f.first_saved = static_cast<int>(facts.saved_tensors.size());
    f.first_own = static_cast<int>(facts.own_bytes.size());
  }

  const LayerSpec& spec;
  bool train;
  std::int64_t item;  ///< Bytes of an element.
  const Shape& x;     ///< Operand 0.
  const Shape& y;     ///< Output 0.
  bool host_kernels;
  LayerFacts f;

  const Shape& operand(int i) const {
    return i == 0 ? x : geometry_.shape_of(spec.from[static_cast<std::size_t>(i) - 1], input_);
  }
  const Shape& output(int k) const { return geometry_.shape_of({layer_, k}, input_); }

  /// Saved tensors, in the order of saving.
  void save(What what, int index = 0, When when = When::always, int of = 0) {
    facts_.saved_tensors.push_back({what, index, when, of});
  }
  /// A tensor that the layer makes beside its outputs, and saves.
  void save_own(std::int64_t bytes) {
    facts_.own_bytes.push_back(bytes);
    save(What::own, static_cast<int>(facts_.own_bytes.size()) - f.first_own - 1);
  }
  /// Bytes of its state that the layer reads.
  void save_state(std::int64_t bytes) {
    f.state_bytes = bytes;
    save(What::state);
  }
  /// x, a mean and 1 / std (if `means`) for each of `rows`, and the weight if x requires grad.
  void save_normalised(std::int64_t rows, bool means = true) {
    save(What::operand);
    if (means) save_own(rows * item);
    save_own(rows * item);
    save(What::parameter, 0, When::operand_requires_grad, 0);
  }
  /// Draws one number for each element, or hands x on if `off`. Returns whether it draws.
  bool draw_unless(bool off) {
    f.identity = off;
    if (!off) f.drawn = x.elements();
    return !off;
  }

  /// Puts the layer's facts behind those of the layers before it.
  void finish() {
    f.saved = static_cast<int>(facts_.saved_tensors.size()) - f.first_saved;
    f.own = static_cast<int>(facts_.own_bytes.size()) - f.first_own;
    facts_.layers.push_back(f);
  }

 private:
  int layer_;
  const Shape& input_;
  const Geometry& geometry_;
  Facts& facts_;
};

}  // namespace rematch
