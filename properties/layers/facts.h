#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace rematch {

/// A tensor that a recorded layer saves for its backward.
struct SavedTensorFact {
  enum class What : std::uint8_t {
    operand,
    output,
    parameter,
    own,    ///< Made by the layer beside its outputs: a mask, indices, statistics.
    state,  ///< The state that the layer read.
  };
  enum class When : std::uint8_t {
    always,
    operand_requires_grad,
    parameter_requires_grad,
  };
  What what = What::own;
  int index = 0;  ///< Which operand, output, parameter or own tensor.
  When when = When::always;
  int of = 0;  ///< The operand or parameter that `when` asks.
};

/// How a layer's backward uses memory.
enum class BackwardUse : std::uint8_t {
  /// Reads all that was saved, then makes one gradient for each operand and parameter that wants
  /// one.
  pointwise,
  /// One gradient after the other, each with the saved tensor and the workspace that it needs (x
  /// and weight of a product); bfloat16 is upcast first, and each gradient rounded.
  product,
  /// Hands the gradient that it got to every operand.
  share,
  /// Takes zeros for an output without gradient.
  join,
};

/// Memory and random streams that one layer uses, whatever its numbers are.
struct LayerFacts {
  /// Returns the very tensor that it got, for each output.
  bool identity = false;
  /// The output has a history of its own but lies in the operand's memory.
  bool aliases_operand = false;
  /// The ops that make its outputs, once for each execution, unless the results are recalled; 0:
  /// it hands on memory that is there.
  int ops = 0;
  /// Computes in bfloat16 under autocast: operands and parameters are cast down first, the output
  /// is bfloat16. All other layers that compute cast a bfloat16 operand up to float32 first.
  bool low_precision = false;
  BackwardUse backward = BackwardUse::pointwise;
  /// Random numbers that one execution draws.
  std::int64_t drawn = 0;
  /// Size of the state that it reads and that forwards change; 0: none. A checkpointed region keeps
  /// what its forward read for its recomputations.
  std::int64_t state_bytes = 0;
  /// Bytes that the kernel needs while it runs, forward and backward alike.
  std::int64_t workspace = 0;
  /// Positions in Facts.
  int first_saved = 0;
  int saved = 0;
  int first_own = 0;
  int own = 0;
};

/// The facts of a case's layers, as one implementation has them.
struct Facts {
  std::vector<LayerFacts> layers;
  /// In the order in which a layer saves.
  std::vector<SavedTensorFact> saved_tensors;
  /// Bytes of the layers' own tensors.
  std::vector<std::int64_t> own_bytes;
  /// Saved tensors were seen in the plain run: those of a layer are known only where the same of
  /// its operands and parameters require grad as there.
  bool measured = false;
  /// Saved tensors are not known at all.
  bool saves_unknown = false;
  /// Saved tensors stand for those that there may be: their bytes mean nothing.
  bool bytes_unknown = false;

  const LayerFacts& of(int layer) const { return layers[static_cast<std::size_t>(layer)]; }
  std::span<const SavedTensorFact> saved_by(const LayerFacts& f) const {
    return std::span(saved_tensors)
        .subspan(static_cast<std::size_t>(f.first_saved), static_cast<std::size_t>(f.saved));
  }
  std::span<const std::int64_t> own_of(const LayerFacts& f) const {
    return std::span(own_bytes).subspan(static_cast<std::size_t>(f.first_own),
                                        static_cast<std::size_t>(f.own));
  }
  void clear() {
    layers.clear();
    saved_tensors.clear();
    own_bytes.clear();
    measured = saves_unknown = bytes_unknown = false;
  }
};

}  // namespace rematch
