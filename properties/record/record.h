#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/math/dtype.h"
#include "engine/tensor/shape.h"

namespace rematch {

enum class Quantity : std::uint8_t {
  output,              ///< Each output of a forward; index = position in live[layers].
  loss,                ///< One scalar per forward.
  input_gradient,      ///< Of each input of a forward, after its backwards; index = input.
  parameter_gradient,  ///< After the step's backwards, before the optimizer; index = parameter.
  parameter,           ///< After the optimizer step.
  buffer,              ///< After the optimizer step; index = buffer.
  reevaluation,        ///< Main output of the last forward, on a new input, in eval mode.
};

/// One array at one point of the run.
struct Observation {
  Quantity quantity{};
  int step = 0;
  int microbatch = 0;  ///< Index within the step; 0 for quantities observed once per step.
  int index = 0;
  bool present = true;  ///< false: the gradient is absent (None), which is not zero.
  bool requires_grad = false;
  DType dtype = DType::float32;
  Shape shape;
  std::size_t offset = 0;
  std::size_t bytes = 0;
};

/// One random draw of a layer. `execution` counts the layer's runs for the same forward: 0 is the
/// forward itself, 1 and above are recomputations.
struct Draw {
  int step = 0;
  int microbatch = 0;
  int layer = 0;
  int execution = 0;
  int stream = 0;
  std::uint64_t offset = 0;
  std::int64_t elements = 0;
  /// Hash of the drawn mask or noise, bit for bit.
  std::uint64_t hash = 0;
};

/// A tensor that an op of a layer returned, or that the graph saved, in one execution of the layer.
/// `index` numbers the results of that execution, its outputs first, or its saved tensors.
struct LayerValue {
  int step = 0;
  int microbatch = 0;
  int layer = 0;
  int execution = 0;
  bool saved = false;
  int index = 0;
  /// The op that made a result; empty for saved tensors.
  std::string op;
  /// Hash over shape, dtype and bits.
  std::uint64_t hash = 0;
  /// Identifies the tensor's storage within the run: equal numbers mean shared memory. 0: not
  /// recorded, or memory of the model or its input, which is not counted.
  std::uint64_t memory = 0;
  std::int64_t bytes = 0;
};

enum class Moment : std::uint8_t { after_forward, after_backward, after_step };

/// State of one random stream at one moment of the run. `seed` may be a hash of the state.
struct StreamReading {
  Moment moment{};
  int step = 0;
  int microbatch = 0;
  int stream = 0;
  std::uint64_t seed = 0;
  std::uint64_t offset = 0;
  friend bool operator==(const StreamReading&, const StreamReading&) = default;
};

/// Ledger readings at one moment. `saved`: live bytes of saved tensors; after a backward it is read
/// when the last node has run, while the run still holds the loss and thus the graph.
/// `temporaries`: live temporary bytes, after the run has dropped its own references.
struct ByteReading {
  Moment moment{};
  int step = 0;
  int microbatch = 0;
  std::int64_t saved = 0;
  std::int64_t temporaries = 0;
  /// true after a backward that retained the graph.
  bool retained = false;
  /// Bytes offloaded to host memory; 0 unless the plan offloads.
  std::int64_t offloaded = 0;
  friend bool operator==(const ByteReading&, const ByteReading&) = default;
};

enum class Event : std::uint8_t {
  /// A layer has run, or a recomputation has stopped in it. Its operands are still held.
  layer,
  /// A backward has run a node, released what it saved (unless the graph is retained), and passed
  /// its gradients on. In Record::held: the backward of a layer begins.
  node,
  gradient,  ///< A leaf has taken its gradient.
  forward,   ///< A forward is over; its outputs and its target are still held.
  backward,  ///< A backward is over; the loss, and with it the graph, is still held.
  graph,     ///< The loss was dropped.
  step,      ///< The optimizer has stepped; gradients are still there, inputs are not.
};

/// Live bytes of the subject, of all tags, at one event. Events of a recomputation or a backward
/// carry the step and the microbatch of their forward; `step` events have microbatch 0. Evaluations
/// have no events.
struct LiveReading {
  Event event{};
  int step = 0;
  int microbatch = 0;
  int layer = -1;            ///< For layer, and for node if it is a layer's main operation.
  int execution = 0;         ///< For layer: number of earlier runs for the same forward.
  std::int64_t entered = 0;  ///< For layer: live bytes when it was entered.
  std::int64_t live = 0;
  /// Peak of live bytes since the previous event, or since the step began.
  std::int64_t peak = 0;
  /// Bytes offloaded to host memory; 0 unless the plan offloads.
  std::int64_t offloaded = 0;
  /// Forecasts only: early stop leaves this layer. The engine may leave it in the middle or after
  /// it has returned, so its results may or may not be live.
  bool stops = false;
  friend bool operator==(const LiveReading&, const LiveReading&) = default;
};

/// `count`: how often layer `layer` was entered for one forward, including recomputations; every
/// layer has one.
/// `computed`: how often it computed. It does not compute when a policy kept its results, or when
/// its outputs are not new tensors (views, in-place ops, identities).
struct ExecutionCount {
  int step = 0;
  int microbatch = 0;
  int layer = 0;
  int count = 0;
  int computed = 0;
  friend bool operator==(const ExecutionCount&, const ExecutionCount&) = default;
};

/// How often parameter `parameter`'s gradient hook fired during the backwards of one forward.
struct HookCount {
  int step = 0;
  int microbatch = 0;
  int parameter = 0;
  int count = 0;
  friend bool operator==(const HookCount&, const HookCount&) = default;
};

/// Whether an output of a layer requires a gradient after the layer's first execution.
struct GradFlag {
  int step = 0;
  int microbatch = 0;
  int layer = 0;
  int output = 0;
  bool requires_grad = false;
  friend bool operator==(const GradFlag&, const GradFlag&) = default;
};

/// How the trial before the first step ended.
struct TrialReading {
  bool failed = false;
  /// Message of the exception.
  std::string message;
  /// Live bytes after the trial's tensors were dropped, minus those before it.
  std::int64_t left_bytes = 0;
  /// Ambient state that the trial changed, such as "grad mode"; empty if none.
  std::string left_behind;
};

/// Outcome of a promise that the case tried: a property of checkpointing that the implementation
/// documents, and that no equal numbers show.
struct PromiseReading {
  std::string name;
  /// Empty if it was kept, otherwise the words of the promise and what happened.
  std::string broken;
};

/// Comparison of one array that a layer, run alone, computes on the host and on a device, in
/// forward or backward. The element is the one that uses most of its error bound.
struct Agreement {
  int layer = 0;
  /// "output 0", "gradient of operand 1", "gradient of weight".
  std::string what;
  std::int64_t element = 0;
  double host = 0;
  double device = 0;
  /// Largest allowed difference; 0: the bits must be equal.
  double bound = 0;
  bool holds = true;
};

/// Promises of a wrapping about one unit: a part of the model whose parameters are communicated
/// together. Derived from the case, never from a run.
struct UnitReading {
  int unit = 0;
  /// The layers that run within the unit: [begin, end).
  int begin = 0;
  int end = 0;
  /// Every device has its parameters whole; how many parts gradients are reduced in is up to it.
  bool replicated = false;
  /// Tensor parallel: devices have parts of its layer. What each run of it sends is of its values.
  bool split = false;
};

enum class CollectiveKind : std::uint8_t {
  gather,   ///< All devices get the whole of a unit's parameters.
  reduce,   ///< Gradients of all devices are added up; each gets all of them, or its share.
  other,    ///< Anything else that carries numbers of the model.
  kept,     ///< No collective: when the backward is over, the unit still holds whole parameters.
  ran,      ///< No collective: a run of a unit that gathers or adds up what it makes is over.
  stopped,  ///< The same of a run that early stop ended.
};
enum class CollectivePhase : std::uint8_t { forward, recomputation, backward };

/// A collective that a device took part in, in their order. `unit`: -1 where it belongs to none.
struct CollectiveReading {
  int step = 0;
  int microbatch = 0;
  CollectiveKind kind{};
  CollectivePhase phase{};
  int unit = -1;
  std::int64_t bytes = 0;
};

struct RecordedError {
  std::string kind;  ///< Such as "invalid_argument", "checkpoint_error" or "out_of_memory".
  std::string message;
};

/// One event of the ledger, for charts; recorded only on request.
struct TimelinePoint {
  std::int64_t live = 0;
  std::int64_t saved = 0;
  int layer = -1;  ///< Layer that was running, or -1.
  Moment phase{};  ///< after_forward: during a forward; after_backward: during a backward.
  int execution = 0;
  /// Which allocation of the run was made, or ended, counted from 1; 0 where none was.
  int block = 0;
};

/// The element at `at`, of any dtype.
double element_of(DType dtype, const std::byte* at);

/// Everything observable of one run.
struct Record {
  /// At most 65,536. In JSON each has its `shape`, and its elements as `data` in base64, or `"as":
  /// true` for the bits that the same array had in the run before of the same case.
  std::vector<Observation> observations;
  /// The elements of all of them.
  std::vector<std::byte> data;
  std::vector<Draw> draws;
  /// Recorded in checkpointed runs, and in plain runs on request. Not part of the hash, because the
  /// bits of a NaN depend on the compiler.
  std::vector<LayerValue> values;
  std::vector<StreamReading> streams;
  std::vector<ByteReading> bytes;
  std::vector<LiveReading> live;
  /// The same of the memory that forwards and recomputations make, layer by layer, without that of
  /// gradients, parameters and states: no events gradient and graph, readings when a layer is
  /// entered and left, and no peaks within. Not part of the hash, because when memory is
  /// let go may depend on the runs before.
  std::vector<LiveReading> held;
  std::vector<ExecutionCount> executions;
  std::vector<HookCount> hooks;
  std::vector<GradFlag> grad_flags;
  std::int64_t peak_bytes = 0;
  /// Bytes reserved from the system at the end. Not part of the hash, because they depend on
  /// earlier runs.
  std::int64_t reserved_bytes = 0;
  std::optional<RecordedError> error;
  /// Present only if the protocol injects a failure.
  std::optional<TrialReading> trial;
  /// Promises that a checkpointed run tried.
  std::vector<PromiseReading> promises;
  /// Units of a model that several devices run, as one of them shows it. Not part of the hash: the
  /// law that reads them knows how many there must be.
  std::vector<UnitReading> units;
  std::vector<CollectiveReading> collectives;
  std::vector<TimelinePoint> timeline;
  /// Only on request (RunRequest::compare_layers); the record then holds nothing else.
  std::vector<Agreement> agreements;

  std::span<const std::byte> bytes_of(const Observation& o) const {
    return std::span(data).subspan(o.offset, o.bytes);
  }
  /// Empties the record but keeps its capacity for the next run.
  void clear();
  /// 64-bit hash over everything but values, timeline, agreements, collectives and promises that
  /// were kept; equal runs give equal hashes.
  std::uint64_t hash() const;
  /// 64-bit hash over what has the same bits on every device: random draws and state, executions,
  /// hooks, and which values require grad.
  std::uint64_t exact_hash() const;
};

/// Gives every NaN among values of `item` bytes (4: float, 8: double; others are left alone) the
/// same bits. Which of two NaNs an addition passes on, and so the sign of the result, is up to the
/// compiler: it means nothing, and may not decide whether two records are equal.
void canonical_nans(std::span<std::byte> values, std::size_t item);

}  // namespace rematch
