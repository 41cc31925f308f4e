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
  output,              ///< Model outputs of one forward; index = position in live[layers].
  loss,                ///< One scalar per forward.
  input_gradient,      ///< After the step's backwards, per microbatch.
  parameter_gradient,  ///< After the step's backwards, before the optimizer; index = parameter.
  parameter,           ///< After the optimizer step.
  buffer,              ///< After the optimizer step; index = buffer.
  reevaluation,        ///< Main output of the last forward, on a new input, in eval mode.
};

/// One array seen at one point of the run. Its bytes lie in Record::data.
struct Observation {
  Quantity quantity{};
  int step = 0;
  int microbatch = 0;  ///< Microbatch within the step; 0 for quantities seen once a step.
  int index = 0;
  bool present = true;  ///< false: the tensor (a gradient) is absent. Absent is not zero.
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

/// A tensor that a layer's op made, or that its graph saved, in one execution of the layer.
/// `index` counts the results, and the saved tensors, of that execution.
struct LayerValue {
  int step = 0;
  int microbatch = 0;
  int layer = 0;
  int execution = 0;
  bool saved = false;
  int index = 0;
  /// Of a result: the op.
  std::string op;
  /// Hash over shape, dtype and bits.
  std::uint64_t hash = 0;
  /// Names the memory that it lies in, within the run: two tensors with one name share it. 0: the
  /// subject does not tell, or it is memory of the model or of its input, which is not counted.
  std::uint64_t memory = 0;
  std::int64_t bytes = 0;
};

enum class Moment : std::uint8_t { after_forward, after_backward, after_step };

/// State of one random stream at one moment.
struct StreamReading {
  Moment moment{};
  int step = 0;
  int microbatch = 0;
  int stream = 0;
  std::uint64_t seed = 0;
  std::uint64_t offset = 0;
  friend bool operator==(const StreamReading&, const StreamReading&) = default;
};

/// Ledger readings at one moment. `saved`: bytes live under that tag; after a backward, when its
/// last node has run, the loss and so the graph still being held. `temporaries`: once the run has
/// dropped its own references.
struct ByteReading {
  Moment moment{};
  int step = 0;
  int microbatch = 0;
  std::int64_t saved = 0;
  std::int64_t temporaries = 0;
  /// After a backward that was not the last one of its forward: the graph stays.
  bool retained = false;
  /// In host memory, waiting for the backward; 0 unless the plan offloads.
  std::int64_t offloaded = 0;
  friend bool operator==(const ByteReading&, const ByteReading&) = default;
};

enum class Event : std::uint8_t {
  layer,     ///< A layer has run, or a recomputation has stopped in it. What it was given is still
             ///< held.
  node,      ///< A backward has run a recorded operation, let go of what it saved unless the graph
             ///< is retained, and handed its gradients on.
  gradient,  ///< A leaf has taken its gradient.
  forward,   ///< A forward is over; its outputs and its target are still held.
  backward,  ///< A backward is over; the loss, and so the graph, is still held.
  graph,     ///< The loss was dropped.
  step,      ///< The optimizer has stepped; gradients are still there, inputs are not.
};

/// Bytes of the subject's memory, all tags together, at one event. An event belongs to the forward
/// (step, microbatch) on whose behalf it happens; those of a step have microbatch 0. Evaluations
/// have none.
struct LiveReading {
  Event event{};
  int step = 0;
  int microbatch = 0;
  int layer = -1;     ///< layer; node, unless it is no layer's main operation: -1.
  int execution = 0;  ///< layer: its runs for the same forward before; 0 is the forward itself.
  std::int64_t entered = 0;  ///< layer: live when it was entered.
  std::int64_t live = 0;
  /// The most that was live since the event before, or since the step began.
  std::int64_t peak = 0;
  /// In host memory, waiting for the backward; 0 unless the plan offloads.
  std::int64_t offloaded = 0;
  /// Of forecasts: a layer that early stop leaves. Whether it leaves in the middle or has returned,
  /// and with that whether its results are live, is left to the engine.
  bool stops = false;
  friend bool operator==(const LiveReading&, const LiveReading&) = default;
};

/// How often layer `layer` was entered for the forward (step, microbatch), recomputations included,
/// and how often it computed: not when its results were kept from an earlier execution, and not for
/// layers whose outputs are no new tensors (views, in place, identities).
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

/// requires_grad of one model value after a layer's first execution.
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
  /// What it threw.
  std::string message;
  /// Live after it was cleared away, beyond what was live before it.
  std::int64_t left_bytes = 0;
  /// Ambient state that is not as before it: "grad mode"; empty when all is.
  std::string left_behind;
};

/// One array that a layer computes by itself, forward or backward, on the host and on a device: the
/// element that uses most of its bound.
struct Agreement {
  int layer = 0;
  /// "output 0", "gradient of operand 1", "gradient of weight".
  std::string what;
  std::int64_t element = 0;
  double host = 0;
  double device = 0;
  /// How far apart the two may be; 0: they must have the same bits.
  double bound = 0;
  bool holds = true;
};

struct RecordedError {
  std::string kind;  ///< "invalid_argument", "checkpoint_error", "out_of_memory", ...
  std::string message;
};

/// One event of the ledger, for pictures; kept only when asked for.
struct TimelinePoint {
  std::int64_t live = 0;
  std::int64_t saved = 0;
  int layer = -1;  ///< Layer that was running, or -1.
  Moment phase{};  ///< after_forward: during a forward; after_backward: during a backward.
  int execution = 0;
};

/// Everything observable of one run.
struct Record {
  std::vector<Observation> observations;
  std::vector<std::byte> data;
  std::vector<Draw> draws;
  /// Of the checkpointed run, and of the plain one if asked for. No part of the hash: the bits of a
  /// NaN depend on the compiler.
  std::vector<LayerValue> values;
  std::vector<StreamReading> streams;
  std::vector<ByteReading> bytes;
  std::vector<LiveReading> live;
  std::vector<ExecutionCount> executions;
  std::vector<HookCount> hooks;
  std::vector<GradFlag> grad_flags;
  std::int64_t peak_bytes = 0;
  /// What the ledger's memory held from the system at the end; no part of the hash, for it depends
  /// on what ran before.
  std::int64_t reserved_bytes = 0;
  std::optional<RecordedError> error;
  /// Only when the protocol has an injected failure.
  std::optional<TrialReading> trial;
  std::vector<TimelinePoint> timeline;
  /// Only when asked for; then there is nothing else.
  std::vector<Agreement> agreements;

  std::span<const std::byte> bytes_of(const Observation& o) const {
    return std::span(data).subspan(o.offset, o.bytes);
  }
  /// Empties the record and keeps its memory for the next run.
  void clear();
  /// 64-bit hash over everything but values, timeline and agreements; equal runs give equal hashes.
  std::uint64_t hash() const;
};

}  // namespace rematch
