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

/// Everything that the harness knows about one kind of layer. To add a kind, define one of these,
/// called <name>_layer, in properties/layers/<name>.cpp, add a line to properties/layers/kinds.h,
/// and tell the engine how to run it in properties/subjects/engine_layers.cpp.
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

  /// The engine's ops that it runs, in order, by the names that policies and records use. A policy
  /// may keep their results. Empty: the layer computes nothing and returns memory that exists.
  /// nullptr: one op, named after the layer.
  std::span<const std::string_view> (*ops)(const LayerSpec&, bool train) = nullptr;
  /// What the reference engine saves, draws and needs.
  void (*facts)(FactsWriter&) = [](FactsWriter&) {};
  /// Whether it draws random numbers in training.
  bool (*draws)(const LayerSpec&) = [](const LayerSpec&) { return false; };
  /// The recorded noise depends on the operand's values, so only runs with equal values are
  /// compared.
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
  /// An activation without fields or parameters that another activation can replace.
  bool exchangeable = false;

  /// Relative odds of this kind: in the standard mix's perceptrons and convolutional models, and in
  /// the wide mix where the current value has rank 2 (rows) or rank 4 (images).
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
  /// Cheap, and keeps the shape of its operand (if `features` is its width), so the wide mix's rare
  /// tail may chain many of them.
  bool chained_in_tail = false;
  /// Each mix promises this kind in at least this percentage of its cases.
  double standard_floor = 0;
  double wide_floor = 0;

  /// Adjusts the fields after the operand's shape has changed (while a case is shrunk).
  void (*mend)(LayerSpec&, const Shape& x) = [](LayerSpec&, const Shape&) {};
  /// How simple a shrunk case looks with it: 0 is simplest.
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
