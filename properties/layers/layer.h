#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "properties/layers/draw_source.h"
#include "properties/layers/facts_writer.h"
#include "properties/layers/geometry.h"
#include "properties/layers/model_draw.h"
#include "properties/layers/spec.h"

namespace rematch {

/// All that the harness knows of one kind of layer. A new kind is a file that defines one of these,
/// called <name>_layer, and a line in properties/layers/kinds.h; how the engine runs it says
/// properties/subjects/engine_model.cpp.
struct Layer {
  std::string_view name;
  /// The fields of LayerSpec that it has besides `kind`; all others must have their usual value.
  LayerFields fields = {};
  int operands = 1;
  int outputs = 1;

  /// Checks the fields and the operands, and states parameters, buffers and outputs.
  void (*shape)(ShapeWalk&) = [](ShapeWalk& s) { s.same_output(); };
  /// Whether a value of that shape can be a further operand beside x; in kinds that have some.
  bool (*fits)(const Shape& x, const Shape& other) = nullptr;

  /// The ops that it runs, in order, as a policy or a subject's records name them: those of the
  /// engine. Their results are what a policy may keep. Empty: it hands on memory that is there.
  /// By default one op with the layer's name.
  std::span<const std::string_view> (*ops)(const LayerSpec&, bool train) = nullptr;
  /// What the reference engine saves, draws and needs.
  void (*facts)(FactsWriter&) = [](FactsWriter&) {};
  /// Whether it draws random numbers in training.
  bool (*draws)(const LayerSpec&) = [](const LayerSpec&) { return false; };
  /// What it draws depends on the values that it gets, or may be reported together with them.
  bool noise_depends_on_values = false;
  /// Computes in bfloat16 under autocast.
  bool low_precision = false;
  bool has_parameters = false;
  /// Has buffers, which a forward in training changes.
  bool stateful = false;

  /// The next layer may overwrite the output: it was made here, and is not saved.
  bool overwritable = false;
  /// The output may lie in the operand's memory.
  bool view = false;
  /// Every output is the very tensor that came in.
  bool hands_on = false;
  /// An elementwise function without parameters, for which another one can stand.
  bool exchangeable = false;

  /// Layers that choose this kind, in the standard mix (perceptrons, and models of images) and in
  /// the wide mix (where the value at hand has rank 2, and where it has rank 4).
  struct Weights {
    int perceptron = 0;
    int convolutional = 0;
    int rows = 0;
    int images = 0;
  } weights;
  /// Sets fields as the standard mix has them; false: the kind does not fit here.
  bool (*draw_standard)(ModelDraw&, LayerSpec&) = [](ModelDraw&, LayerSpec&) { return true; };
  /// Appends a layer of this kind to a model of the wide mix, or another one if it does not fit.
  void (*draw)(ModelDraw&, LayerKind) = [](ModelDraw& m, LayerKind kind) { m.append(kind); };
  /// Keeps a value's shape (given its width as `features`), and is cheap: the wide mix's rare tail
  /// chains many.
  bool chained_in_tail = false;
  /// Percent of the cases of each mix that have it, at least.
  double standard_floor = 0;
  double wide_floor = 0;

  /// Changes fields so that they fit operands of other shapes than before.
  void (*mend)(LayerSpec&, const Shape& x) = [](LayerSpec&, const Shape&) {};
  /// How much a reader has to know before it means something: 0 little.
  int rank = 3;
  /// Kinds of a higher rank may become this one while a case is shrunk, with `simple_p` as p.
  bool stands_in = false;
  double simple_p = 0;
  /// What the kind becomes when a model of images is shrunk to one of rows.
  std::string_view on_rows = {};

  bool takes(std::string_view field) const { return fields.contains(field); }
};

#define REMATCH_KIND(name) extern const Layer name##_layer;
REMATCH_LAYER_KINDS(REMATCH_KIND)
#undef REMATCH_KIND

const Layer& layer_of(LayerKind kind);
inline const Layer& layer_of(const LayerSpec& spec) { return layer_of(spec.kind); }

/// See Layer::ops.
std::span<const std::string_view> ops_of(const LayerSpec& spec, bool train);
/// The name of an op of any kind, for as long as the program runs; nullopt if no kind has it.
std::optional<std::string_view> op_named(std::string_view name);

/// For Layer::ops of layers that have an op only where they do something.
inline constexpr std::span<const std::string_view> kNoOps;

}  // namespace rematch
