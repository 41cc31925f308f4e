#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <tuple>
#include <vector>

#include "engine/math/dtype.h"
#include "properties/layers/field.h"
#include "properties/layers/options.h"
#include "properties/layers/spec.h"

namespace rematch {

enum class Variant : std::uint8_t { reentrant, non_reentrant };
enum class CheckKind : std::uint8_t { none, metadata, values };

/// How a segment is handed its tensors. Segments of the engine take lists, so only other subjects
/// are given anything but `tensors`.
enum class Arguments : std::uint8_t {
  /// Each tensor is an argument.
  tensors,
  /// The only argument is a dictionary that holds the tensors among other things.
  dictionary,
  /// The first of several tensors is an argument. The others, or the only one, are keyword
  /// arguments, and so are a number, a boolean and None. Non-reentrant only.
  keywords,
  /// The only argument is a list, from which the segment takes its tensors.
  emptied,
};

/// One entry of a selective policy: the results of this op are kept, not recomputed.
struct KeepSpec {
  /// Name of an op, as in Layer::ops. It has static lifetime.
  std::string_view op;
  /// Index among the ops of that name in the segment; -1: all of them.
  int index = -1;
  friend bool operator==(const KeepSpec&, const KeepSpec&) = default;
};

struct CheckpointChoice {
  Variant variant = Variant::non_reentrant;
  /// Recomputations draw what the forward drew.
  bool preserve_rng = true;
  /// A recomputation ends at the last saved tensor. Non-reentrant only.
  bool early_stop = true;
  /// The tensors that are compared between forward and recomputation. Non-reentrant only.
  CheckKind determinism = CheckKind::metadata;
  /// Selective policy. Non-reentrant only, in segments without nested ones, with one backward per
  /// forward.
  std::vector<KeepSpec> keep;
  Arguments arguments = Arguments::tensors;
  /// The segment returns a dictionary that holds its tensors among other things. Not for the
  /// engine, whose segments return lists.
  bool nested_outputs = false;
  friend bool operator==(const CheckpointChoice&, const CheckpointChoice&) = default;
};

template <>
struct FieldsOf<CheckpointChoice> {
  using S = CheckpointChoice;
  static constexpr std::tuple list{
      Field<S, Variant>{"variant", &S::variant, Cost::one, "{}", true, Presence::written},
      Field<S, bool>{"preserve_rng", &S::preserve_rng, Cost::one, "random state not preserved"},
      Field<S, bool>{"early_stop", &S::early_stop, Cost::one, "no early stop"},
      Field<S, CheckKind>{"determinism", &S::determinism, Cost::one, "checks {}"},
      Field<S, std::vector<KeepSpec>>{"keep", &S::keep, Cost::amount, "keeps {}"},
      Field<S, Arguments>{.name = "arguments",
                          .member = &S::arguments,
                          .cost = Cost::one,
                          .phrase = "arguments ({})",
                          .old_name = "nested_inputs"},
      Field<S, bool>{"nested_outputs", &S::nested_outputs, Cost::one, "outputs in a dictionary"},
  };
};

/// Layers [begin, end) run inside one checkpoint() call; nested segments lie inside, in order,
/// without overlap.
struct SegmentSpec {
  /// First layer.
  int begin = 0;
  /// One past the last layer.
  int end = 0;
  CheckpointChoice choice;
  std::vector<SegmentSpec> nested;
  friend bool operator==(const SegmentSpec&, const SegmentSpec&) = default;
};

template <>
struct FieldsOf<SegmentSpec> {
  using S = SegmentSpec;
  static constexpr std::tuple list{
      Field<S, int>{"begin", &S::begin, Cost::none, {}, false, Presence::required},
      Field<S, int>{"end", &S::end, Cost::none, {}, false, Presence::required},
      Part<S, CheckpointChoice>{&S::choice},
      Field<S, std::vector<SegmentSpec>>{"nested", &S::nested, Cost::none},
  };
};

/// The model is cut by the engine's checkpoint_sequential().
struct SequentialSpec {
  /// Number of segments.
  int segments = 1;
  /// The last segment is stored, as in PyTorch.
  bool last_stored = true;
  CheckpointChoice choice;
  friend bool operator==(const SequentialSpec&, const SequentialSpec&) = default;
};

template <>
struct FieldsOf<SequentialSpec> {
  using S = SequentialSpec;
  static constexpr std::tuple list{
      Field<S, int>{"segments", &S::segments, Cost::none, "{} segment{s}", true,
                    Presence::required},
      Field<S, bool>{"last_stored", &S::last_stored, Cost::one, "the last checkpointed too"},
      Part<S, CheckpointChoice>{&S::choice},
  };
};

/// Costs that a plan promises of the checkpointed run; judged by the law plan-promise.
struct PromiseSpec {
  static constexpr std::int64_t kNone = -1;
  /// The most live bytes at any moment, those of the model included; -1: none is promised.
  std::int64_t peak_bytes = -1;
  /// The most runs of layers that the backwards of one forward add; -1: none is promised.
  std::int64_t recomputations = -1;
  friend bool operator==(const PromiseSpec&, const PromiseSpec&) = default;
};

template <>
struct FieldsOf<PromiseSpec> {
  using S = PromiseSpec;
  static constexpr std::tuple list{
      Field<S, std::int64_t>{"peak_bytes", &S::peak_bytes, Cost::one, "at most {} bytes promised"},
      Field<S, std::int64_t>{"recomputations", &S::recomputations, Cost::one,
                             "at most {} recomputation{s} promised"},
  };
};

/// Either `sequential`, or explicit `segments` (ordered and disjoint; other layers run plain), or
/// neither: then nothing is checkpointed.
struct PlanSpec {
  /// Equal segments, as checkpoint_sequential() cuts them.
  std::optional<SequentialSpec> sequential;
  /// Segments in order, which do not overlap. Layers outside of them run plain.
  std::vector<SegmentSpec> segments;
  /// Saved tensors, inputs of segments included, wait in host memory until the backward needs
  /// them.
  bool offload = false;
  /// Costs of the run, as its planner says.
  PromiseSpec promise;
  /// Whether nothing is checkpointed, whatever is promised.
  bool empty() const { return !sequential && segments.empty() && !offload; }
  friend bool operator==(const PlanSpec&, const PlanSpec&) = default;
};

template <>
struct FieldsOf<PlanSpec> {
  using S = PlanSpec;
  static constexpr std::tuple list{
      Field<S, std::optional<SequentialSpec>>{"sequential", &S::sequential, Cost::none},
      Field<S, bool>{"offload", &S::offload, Cost::one, "saved tensors offloaded to the host"}
          .showing(Feature::offload),
      Field<S, std::vector<SegmentSpec>>{"segments", &S::segments, Cost::none},
      // The last one: structures count fields by their position.
      Field<S, PromiseSpec>{"promise", &S::promise, Cost::one},
  };
};

enum class LossKind : std::uint8_t { mse, cross_entropy };
enum class OptimizerKind : std::uint8_t { sgd, adam };
/// Under autocast, linear and conv2d compute in bfloat16. forward: each forward and its loss run in
/// an autocast scope. both: each backward also runs in one, so its recomputations share one cast
/// cache.
enum class AutocastSpan : std::uint8_t { off, forward, both };
/// normal: standard normal data. small_integers: inputs, weights and targets are integers in
/// [-3, 3], which keeps the sums of linear models exact.
enum class DataKind : std::uint8_t { normal, small_integers };

/// The failure that is injected into a trial before the first step; see InjectedFailure.
enum class FailureKind : std::uint8_t {
  none,
  /// The model input is written to between forward and backward.
  input_changed,
  /// The layer's weight is written to between forward and backward.
  weight_changed,
  /// In recomputations the layer, an activation, computes a different activation.
  op_exchanged,
  /// The layer throws when the forward runs it.
  forward_throws,
  /// The layer throws when a recomputation runs it.
  recomputation_throws,
  /// The graph is dropped without a backward.
  graph_dropped,
  /// In recomputations the last two extents of the layer's operand, an activation's, are exchanged.
  shape_changed,
  /// In recomputations its last element is another, which only a check on values can see.
  value_changed,
};

/// A trial before the first step: one forward, the failure, one backward. Weights and gradients are
/// then restored and the protocol begins; anything that the trial left behind would show there.
struct InjectedFailure {
  FailureKind kind = FailureKind::none;
  /// Layer that fails; 0 for failures that concern no layer.
  int layer = 0;
  friend bool operator==(const InjectedFailure&, const InjectedFailure&) = default;
};

template <>
struct FieldsOf<InjectedFailure> {
  using S = InjectedFailure;
  static constexpr std::tuple list{
      Field<S, FailureKind>{
          .name = "inject", .member = &S::kind, .cost = Cost::two, .old_name = "mishap"}
          .showing(Feature::injected_failure),
      Field<S, int>{.name = "inject_layer",
                    .member = &S::layer,
                    .cost = Cost::none,
                    .old_name = "mishap_layer"},
  };
};

/// The training protocol: `steps` times { `microbatches` times forward and backward; optimizer
/// step; zero or keep gradients }.
struct ProtocolSpec {
  /// Optimizer steps.
  int steps = 1;
  /// Forwards per step.
  int microbatches = 1;
  /// All forwards of a step run before its first backward; the backwards then run in reverse order.
  bool forwards_first = false;
  /// Number of backwards per forward; all but the last retain the graph.
  int backwards = 1;
  /// Each backward is two: one to the first, third, ... tensor that requires grad (parameters in
  /// order, then model inputs), one to the others. Not with reentrant segments, nor with a policy.
  bool partial = false;
  /// Every output of the model has a loss and its own backwards, not just the first. The loss of a
  /// further output is the mean of its squares. With reentrant segments the input must require
  /// grad, so that every output does in both runs.
  bool auxiliary_losses = false;
  /// Every parameter starts with a gradient of ones, to which the first step adds.
  bool prior_gradients = false;
  /// Gradients are set to None after each optimizer step; otherwise they accumulate.
  bool zero_grad = true;
  /// Train mode; false: eval mode.
  bool train = true;
  bool input_requires_grad = false;
  /// Number of further inputs that require grad, the first ones.
  int further_inputs_with_grad = 0;
  LossKind loss = LossKind::mse;
  OptimizerKind optimizer = OptimizerKind::sgd;
  double learning_rate = 0.05;
  /// SGD only.
  double momentum = 0;
  /// Norm to which gradients are clipped before each optimizer step; 0: no clipping.
  double clip = 0;
  /// Factor of the losses, by which gradients are divided before the optimizer; a step with a
  /// gradient that is not finite is skipped and halves it; 0: no scaler. Only in float32, with an
  /// optimizer without state, with zero_grad and without prior gradients.
  double loss_scale = 0;
  /// Span of autocast to bfloat16. float32 only.
  AutocastSpan autocast = AutocastSpan::off;
  /// Casts of parameters are cached until the autocast scope ends.
  bool cast_cache = true;
  /// After the last step, run one plain forward in eval mode on a new input.
  bool reevaluate = false;
  /// Not allowed with preserve_rng off: the forecast cannot predict what recomputations draw.
  InjectedFailure failure;
  friend bool operator==(const ProtocolSpec&, const ProtocolSpec&) = default;
};

template <>
struct FieldsOf<ProtocolSpec> {
  using S = ProtocolSpec;
  static constexpr std::tuple list{
      Field<S, int>{"steps", &S::steps, Cost::amount, "{} step{s}", true, Presence::unusual, 1,
                    1024}
          .varying()
          .showing(Feature::several_steps),
      Field<S, int>{"microbatches", &S::microbatches, Cost::amount, "{} microbatch{es} a step",
                    false, Presence::unusual, 1, 1024}
          .varying()
          .showing(Feature::accumulation),
      Field<S, bool>{"forwards_first", &S::forwards_first, Cost::one, "forwards first"}.varying(),
      Field<S, int>{"backwards", &S::backwards, Cost::amount, "{} backward{s} per forward", false,
                    Presence::unusual, 1, 64}
          .showing(Feature::retain_graph),
      Field<S, bool>{"partial", &S::partial, Cost::one, "partial backwards"}.showing(
          Feature::partial_backwards),
      Field<S, bool>{"auxiliary_losses", &S::auxiliary_losses, Cost::one, "auxiliary losses"},
      Field<S, bool>{"prior_gradients", &S::prior_gradients, Cost::one, "prior gradients"}
          .varying()
          .showing(Feature::prior_gradients),
      Field<S, bool>{"zero_grad", &S::zero_grad, Cost::one, "gradients kept"}.varying(),
      Field<S, bool>{"train", &S::train, Cost::one, "eval mode"}.showing(Feature::eval_mode),
      Field<S, bool>{"input_requires_grad", &S::input_requires_grad, Cost::one,
                     "input requires grad"},
      Field<S, int>{"further_inputs_with_grad", &S::further_inputs_with_grad, Cost::amount,
                    "{} further one{s} with grad", false, Presence::unusual, 0, 3},
      Field<S, LossKind>{"loss", &S::loss, Cost::one, "{}", true},
      Field<S, OptimizerKind>{"optimizer", &S::optimizer, Cost::one, "{}", true}.varying(),
      Field<S, double>{"learning_rate", &S::learning_rate, Cost::one, "learning rate {}", true}
          .varying(),
      Field<S, double>{"momentum", &S::momentum, Cost::one, "momentum {}"}.varying().showing(
          Feature::momentum),
      Field<S, double>{"clip", &S::clip, Cost::one, "gradients clipped to {}"}.varying().showing(
          Feature::clipping),
      Field<S, double>{"loss_scale", &S::loss_scale, Cost::one, "loss scaled by {}"}
          .varying()
          .showing(Feature::loss_scaling),
      Field<S, bool>{"reevaluate", &S::reevaluate, Cost::one, "reevaluated"}.showing(
          Feature::reevaluate),
      Field<S, AutocastSpan>{"autocast", &S::autocast, Cost::amount, "autocast ({})"},
      Field<S, bool>{"cast_cache", &S::cast_cache, Cost::one, "no cast cache"},
      Part<S, InjectedFailure>{&S::failure},
  };
};

/// Whether model input `input` requires grad, the first one being 0.
inline bool requires_grad(const ProtocolSpec& p, int input) {
  return input == 0 ? p.input_requires_grad : input <= p.further_inputs_with_grad;
}

/// Everything that determines a run. Equal cases give equal records, on every machine.
struct Case {
  static constexpr int kFormat = 1;
  /// Seed of weights, data and random streams.
  std::uint64_t seed = 0;
  /// float32 or float64.
  DType dtype = DType::float32;
  DataKind data = DataKind::normal;
  /// Shape: [batch, width], [batch, tokens, width] or [batch, channels, height, width, ...].
  std::vector<std::int64_t> input;
  /// Number of model inputs beside the first, of its shape. Layers read them as outputs 1, 2, ...
  /// of layer -1. Not beside tokens.
  int further_inputs = 0;
  std::vector<LayerSpec> layers;
  PlanSpec plan;
  ProtocolSpec protocol;
  /// Options of the subject, by name, that differ from their first value.
  Options options;
  friend bool operator==(const Case&, const Case&) = default;
};

template <>
struct FieldsOf<Case> {
  using S = Case;
  static constexpr std::tuple list{
      Field<S, std::uint64_t>{"seed", &S::seed, Cost::none, {}, false, Presence::written}.varying(),
      Field<S, DType>{"dtype", &S::dtype, Cost::one, {}, false, Presence::written},
      Field<S, DataKind>{"data", &S::data, Cost::one, "data of small integers"}.varying().showing(
          Feature::small_integers),
      Field<S, std::vector<std::int64_t>>{
          "input", &S::input, Cost::size, {}, false, Presence::required},
      Field<S, int>{"further_inputs", &S::further_inputs, Cost::amount, "{} further input{s}",
                    false, Presence::unusual, 0, 3},
      Field<S, std::vector<LayerSpec>>{
          "layers", &S::layers, Cost::none, {}, false, Presence::required},
      Field<S, PlanSpec>{"plan", &S::plan, Cost::none},
      Field<S, ProtocolSpec>{"protocol", &S::protocol, Cost::none},
      Field<S, Options>{"options", &S::options, Cost::amount},
  };
};

std::string_view to_string(Variant variant);
std::string_view to_string(CheckKind check);
std::string_view to_string(Arguments arguments);
std::string_view to_string(LossKind loss);
std::string_view to_string(OptimizerKind optimizer);
std::string_view to_string(AutocastSpan span);
std::string_view to_string(DataKind data);
std::string_view to_string(FailureKind kind);

}  // namespace rematch
