#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "properties/layers/draw_source.h"
#include "properties/layers/facts_writer.h"
#include "properties/layers/geometry.h"
#include "properties/layers/layer_run.h"
#include "properties/layers/model_draw.h"
#include "properties/layers/spec.h"

namespace rematch {

/// Everything that the harness knows about one kind of layer. To add a kind: define a Layer named
/// <name>_layer in properties/layers/<name>.cpp, add a line to properties/layers/kinds.h, and
/// implement it for the engine in properties/subjects/engine_layers.cpp.
// NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding): ordered by meaning.
struct Layer {
  std::string_view name;
  /// The fields of LayerSpec that this kind uses besides `kind`; all others must keep their
  /// defaults.
  LayerFields fields = {};
  int operands = 1;
  int outputs = 1;

  /// Checks the fields and the operands, and declares parameters, buffers and outputs.
  void (*shape)(ShapeWalk&) = [](ShapeWalk& s) { s.same_output(); };
  /// For kinds with more than one operand: whether a value of shape `other` can be an operand next
  /// to x.
  bool (*fits)(const Shape& x, const Shape& other) = nullptr;

  /// Names of the engine's ops that the layer runs, in order; policies and records use these names,
  /// and a policy can keep their results. Empty: the layer computes nothing and returns existing
  /// memory. nullptr: one op, named after the layer.
  std::span<const std::string_view> (*ops)(const LayerSpec&, bool train) = nullptr;
  /// Tells what the reference engine saves, draws and needs.
  void (*facts)(FactsWriter&) = [](FactsWriter&) {};
  /// Whether a kernel of the reference engine works in more than one block, by the sizes in its
  /// headers, apart from blocks of draws; nullptr: no case of a mix is so large, or none does.
  bool (*in_blocks)(const FactsWriter&) = nullptr;
  /// Its outputs where it draws nothing, with bounds on what rounding may change; nullptr: what it
  /// computes only the subject knows.
  std::vector<rounding::Vars> (*bounds)(rounding::LayerRun&) = nullptr;
  /// Whether it draws random numbers where it trains; ask draws_in() of a layer.
  bool (*draws)(const LayerSpec&) = [](const LayerSpec&) { return false; };
  /// The recorded noise depends on the operand's values, so only runs with equal values are
  /// compared.
  bool noise_depends_on_values = false;
  /// How much frameworks save of the layer, in a model in that mode, may depend on what it draws or
  /// on its operand's values, so one forward does not show what another saves. (The engine saves as
  /// many bytes always.)
  bool (*saves_vary)(const LayerSpec&, bool train) = [](const LayerSpec&, bool) { return false; };
  /// The layer computes in bfloat16 under autocast.
  bool low_precision = false;
  /// It consists of products, which frameworks compute in bfloat16 there, though the engine does
  /// not.
  bool has_products = false;
  bool has_parameters = false;
  /// Another kind whose weight it can be tied to, if it has no bias.
  std::string_view borrows_from = {};
  /// Has buffers that a training forward updates.
  bool stateful = false;
  /// In training its outputs depend on its buffers, so that earlier forwards decide about later
  /// ones.
  bool reads_state = false;
  /// Whether its gradients, in a model in that mode, are not the derivatives of its outputs: a hook
  /// or a state comes between, or a rounding that they pass as if it were not there.
  bool (*changes_gradients)(const LayerSpec&, bool train) = [](const LayerSpec&, bool) {
    return false;
  };

  /// The next layer may overwrite the output in place: it is new memory and not saved.
  bool overwritable = false;
  /// The output may share the operand's memory.
  bool view = false;
  /// Every output is one of the input tensors itself.
  bool identity = false;
  /// An activation without fields or parameters; another activation can replace it.
  bool exchangeable = false;

  /// Relative frequencies of this kind: in perceptrons and in convolutional models of the standard
  /// mix, and in the wide mix after a value of rank 2 (rows), 3 (sequences) or 4 (images).
  struct Weights {
    int perceptron = 0;
    int convolutional = 0;
    int rows = 0;
    int sequences = 0;
    int images = 0;
  } weights;
  /// Chooses the fields for the standard mix; false: this kind does not fit here.
  bool (*draw_standard)(ModelDraw&, LayerSpec&) = [](ModelDraw&, LayerSpec&) { return true; };
  /// Appends a layer of this kind to a model of the wide mix, or of another kind if this one does
  /// not fit.
  void (*draw)(ModelDraw&, LayerKind) = [](ModelDraw& m, LayerKind kind) { m.append(kind); };
  /// Cheap, and keeps the shape of its operand (if `features` is its width), so the rare large
  /// models of the wide mix can chain many of them.
  bool chained_in_tail = false;
  /// Minimum percentage of cases in which each mix has this kind.
  double standard_floor = 0;
  double wide_floor = 0;

  /// Adjusts the fields after shrinking has changed the shapes of the operands; `other` is that of
  /// the last.
  void (*repair)(LayerSpec&, const Shape& x, const Shape& other) = [](LayerSpec&, const Shape&,
                                                                      const Shape&) {};
  /// How complex this kind counts while shrinking: 0 is simplest.
  int rank = 3;
  /// Shrinking may replace kinds of a higher rank by this one, with `simple_p` as p.
  bool stands_in = false;
  double simple_p = 0;
  /// The kind that replaces this one when shrinking turns a model of images into a model of rows,
  /// and the one of as many features that replaces it when shrinking turns tokens into numbers.
  std::string_view on_rows = {};
  std::string_view on_numbers = {};

  bool takes_tokens() const { return takes("vocabulary"); }
  bool takes(std::string_view field) const { return fields.contains(field); }
};

#define REMATCH_KIND(name) extern const Layer name##_layer;
REMATCH_LAYER_KINDS(REMATCH_KIND)
#undef REMATCH_KIND

const Layer& layer_of(LayerKind kind);
inline const Layer& layer_of(const LayerSpec& spec) { return layer_of(spec.kind); }
/// The kind that a model of tokens begins with.
LayerKind token_kind();
/// Whether this layer has some: of a custom layer only its declaration knows.
bool has_parameters(const LayerSpec& spec);

/// Whether a layer of kind `to` can be tied to the weight of one of kind `owner`.
bool lends_weight(LayerKind owner, LayerKind to);
/// Whether it adds one: kinds without such a field never do.
inline bool has_bias(const LayerSpec& spec) { return spec.bias && layer_of(spec).takes("bias"); }

/// Whether it draws in a model in that mode.
inline bool draws_in(const LayerSpec& spec, bool train) {
  return trains_in(spec, train) && layer_of(spec).draws(spec);
}

/// See Layer::ops; of a model in that mode.
std::span<const std::string_view> ops_of(const LayerSpec& spec, bool train);
/// The op name with static lifetime; nullopt if no kind has such an op.
std::optional<std::string_view> op_named(std::string_view name);

/// For Layer::ops of layers that run no op in some modes.
inline constexpr std::span<const std::string_view> kNoOps;

}  // namespace rematch
