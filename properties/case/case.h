#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/tensor/dtype.h"

namespace rematch {

enum class LayerKind : std::uint8_t {
  linear,
  conv2d,
  max_pool2d,
  avg_pool2d,
  batch_norm,
  layer_norm,
  relu,
  gelu,
  tanh,
  sigmoid,
  softmax,
  dropout,
  rrelu,
  gaussian_noise,
  flatten,
  add,
  concat,
  split,
  duplicate,
};

/// One value of the model: output `output` of layer `layer`; layer -1 is the model input.
struct ValueRef {
  int layer = -1;
  int output = 0;
  friend bool operator==(const ValueRef&, const ValueRef&) = default;
};

/// One layer of a sequential model. Its first operand is always output 0 of the layer before it
/// (the model input for layer 0).
struct LayerSpec {
  LayerKind kind = LayerKind::relu;
  /// linear: output width; conv2d: output channels; split: extent along dimension 1 of output 0
  /// (output 1 takes the rest).
  std::int64_t features = 0;
  /// conv2d and the two pools; square windows.
  std::int64_t kernel = 0;
  std::int64_t stride = 1;
  std::int64_t padding = 0;
  /// dropout: probability of zeroing, in [0, 1); gaussian_noise: standard deviation >= 0.
  double p = 0;
  /// linear and conv2d.
  bool bias = true;
  /// relu only.
  bool in_place = false;
  /// Parameters do not require grad (layers with parameters only).
  bool frozen = false;
  /// linear, conv2d: shares weight and bias with this earlier layer of the same kind and shapes.
  int tied_to = -1;
  /// dropout, rrelu, gaussian_noise: the random stream that it draws from, in 0..255.
  int stream = 0;
  /// add, concat (along dimension 1): the second operand; any earlier value, also operand 1 again.
  std::optional<ValueRef> from;
  friend bool operator==(const LayerSpec&, const LayerSpec&) = default;
};

enum class Variant : std::uint8_t { reentrant, non_reentrant };
enum class CheckKind : std::uint8_t { none, metadata, values };

/// Part of a selective policy: the results of an op are kept for the replay instead of computed
/// again.
struct KeepSpec {
  /// The layer kind whose op is meant; not flatten or duplicate, which compute nothing.
  LayerKind kind = LayerKind::linear;
  /// The index-th such op of the segment, from 0; -1: all of them.
  int index = -1;
  friend bool operator==(const KeepSpec&, const KeepSpec&) = default;
};

struct CheckpointChoice {
  Variant variant = Variant::non_reentrant;
  bool preserve_rng = true;
  /// Non-reentrant only.
  bool early_stop = true;
  /// Non-reentrant only.
  CheckKind determinism = CheckKind::metadata;
  /// Non-reentrant only, in segments without nested ones, and with one backward per forward.
  std::vector<KeepSpec> keep;
  friend bool operator==(const CheckpointChoice&, const CheckpointChoice&) = default;
};

/// Layers [begin, end) run inside one checkpoint() call; nested segments lie inside, in order,
/// without overlap.
struct SegmentSpec {
  int begin = 0;
  int end = 0;
  CheckpointChoice choice;
  std::vector<SegmentSpec> nested;
  friend bool operator==(const SegmentSpec&, const SegmentSpec&) = default;
};

/// The engine's own checkpoint_sequential() cuts the model.
struct SequentialSpec {
  int segments = 1;
  bool last_stored = true;
  CheckpointChoice choice;
  friend bool operator==(const SequentialSpec&, const SequentialSpec&) = default;
};

/// Either `sequential`, or explicit `segments` (ordered, disjoint; layers outside run plain).
/// Neither is the plain plan.
struct PlanSpec {
  std::optional<SequentialSpec> sequential;
  std::vector<SegmentSpec> segments;
  /// What the model's graph saves, segment inputs included, waits for the backward in host memory.
  bool offload = false;
  bool empty() const { return !sequential && segments.empty() && !offload; }
  friend bool operator==(const PlanSpec&, const PlanSpec&) = default;
};

enum class LossKind : std::uint8_t { mse, cross_entropy };
enum class OptimizerKind : std::uint8_t { sgd, adam };
/// Under autocast linear and conv2d compute in bfloat16. forward: each forward and its loss run in
/// an autocast scope; both: so does each backward, whose replays then find one cast cache.
enum class AutocastSpan : std::uint8_t { off, forward, both };
/// normal: standard normal data. small_integers: inputs, weights and targets are integers in
/// [-3, 3], which keeps the sums of linear models exact.
enum class DataKind : std::uint8_t { normal, small_integers };

/// What goes wrong in a trial before the first step; see MishapSpec.
enum class MishapKind : std::uint8_t {
  none,
  /// Between forward and backward the model input is written to.
  input_changed,
  /// Between forward and backward the layer's weight is written to.
  weight_changed,
  /// In replays the layer, an activation, computes another one.
  op_exchanged,
  /// The layer throws when the forward runs it.
  forward_throws,
  /// The layer throws when a replay runs it.
  replay_throws,
  /// The graph is dropped without a backward.
  graph_dropped,
};

/// A trial: one forward, a mistake or a failure, one backward. Then weights and gradients are as
/// they were, and the protocol begins. What it leaves behind would show there.
struct MishapSpec {
  MishapKind kind = MishapKind::none;
  /// Of a mishap that happens to a layer; else 0.
  int layer = 0;
  friend bool operator==(const MishapSpec&, const MishapSpec&) = default;
};

/// What is done with the model: `steps` times { zero or keep gradients; `microbatches` times
/// forward and backward; optimizer step }.
struct ProtocolSpec {
  int steps = 1;
  int microbatches = 1;
  /// All forwards of a step run before its first backward (which then go in reverse order).
  bool forwards_first = false;
  /// Backward passes per forward; all but the last retain the graph.
  int backwards = 1;
  /// Every parameter starts with a non-empty gradient (ones), kept by the first step.
  bool prior_gradients = false;
  /// Gradients are dropped (set to none) after each optimizer step; else they accumulate.
  bool zero_grad = true;
  bool train = true;
  bool input_requires_grad = false;
  LossKind loss = LossKind::mse;
  OptimizerKind optimizer = OptimizerKind::sgd;
  double learning_rate = 0.05;
  /// sgd.
  double momentum = 0;
  /// float32 only.
  AutocastSpan autocast = AutocastSpan::off;
  /// Autocast: casts of parameters are kept for the rest of the scope.
  bool cast_cache = true;
  /// After the last step, run one plain forward in eval mode on a new input.
  bool reevaluate = false;
  /// Not with preserve_rng off: what replays draw then is nobody's to foresee.
  MishapSpec mishap;
  friend bool operator==(const ProtocolSpec&, const ProtocolSpec&) = default;
};

/// Everything that decides a run. Two equal cases give equal records, on every machine.
struct Case {
  static constexpr int kFormat = 1;
  std::uint64_t seed = 0;
  DType dtype = DType::float32;
  DataKind data = DataKind::normal;
  /// [batch, width] or [batch, channels, height, width].
  std::vector<std::int64_t> input;
  std::vector<LayerSpec> layers;
  PlanSpec plan;
  ProtocolSpec protocol;
  friend bool operator==(const Case&, const Case&) = default;
};

std::string_view to_string(LayerKind kind);
std::string_view to_string(Variant variant);
std::string_view to_string(CheckKind check);
std::string_view to_string(LossKind loss);
std::string_view to_string(OptimizerKind optimizer);
std::string_view to_string(AutocastSpan span);
std::string_view to_string(DataKind data);
std::string_view to_string(MishapKind kind);

}  // namespace rematch
