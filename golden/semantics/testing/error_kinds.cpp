#include "golden/semantics/testing/error_kinds.h"

namespace rematch::golden {
namespace {

// Errors that the engine has no occasion for: it has no keywords, no lists of ops, no debug mode.
constexpr std::string_view kNone;

constexpr ErrorKind kKinds[] = {
    {"changed in place", "RuntimeError", "has been modified by an inplace operation",
     "runtime_error", "was changed by an in-place operation"},
    {"leaf written in place", "RuntimeError",
     "a leaf Variable that requires grad is being used in an in-place", "invalid_argument",
     "a leaf that requires grad is being used in an in-place operation"},
    {"walked twice", "RuntimeError", "Trying to backward through the graph a second time",
     "runtime_error", "was already walked and freed"},
    {"root requires no grad", "RuntimeError", "does not require grad and does not have a grad_fn",
     "invalid_argument", "the root does not require grad"},
    {"partial backward", "RuntimeError",
     "incompatible with .grad() or passing an `inputs` parameter", "invalid_argument",
     "cannot be differentiated by grad() or by backward() with inputs"},
    {"no output requires grad", "RuntimeError", "none of output has requires_grad=True",
     "invalid_argument", "none of the outputs that require grad in the recomputation"},
    {"fewer saved", "CheckpointError", "A different number of tensors was saved", "CheckpointError",
     "the recomputation saved "},
    {"more saved", "CheckpointError", "trying to save more tensors during recomputation",
     "CheckpointError", "the recomputation saves more tensors"},
    {"other metadata", "CheckpointError", "different metadata than during the forward pass",
     "CheckpointError", "the recomputation differs from the forward: saved tensor"},
    {"unpacked twice", "CheckpointError",
     "Unpack is being triggered for a tensor that was already unpacked once", "CheckpointError",
     "was unpacked twice in one backward"},
    {"overlapping backwards", "CheckpointError", "Performing two backward calls that overlap",
     "CheckpointError", "was unpacked twice in one group of backwards"},
    {"nested groups", "RuntimeError", "GraphExecGroup contexts cannot be nested",
     "invalid_argument", "a group cannot begin inside another"},
    {"the function's own", "ValueError", "the function gave up", "runtime_error",
     "the function gave up"},
    {"consumed", "RuntimeError", "Trying to backward an extra time", "CheckpointError",
     "was used up by an earlier recomputation"},
    {"cached tensor changed", "RuntimeError",
     "cached during selective activation checkpoint has been mutated", "CheckpointError",
     "was changed in place since; have it recomputed"},

    {"keyword arguments", "ValueError", "Unexpected keyword arguments", kNone, kNone},
    {"too many arguments", "TypeError", "got multiple values for argument", kNone, kNone},
    {"non-reentrant only", "ValueError", "is only supported when use_reentrant=False", kNone,
     kNone},
    {"unknown check", "ValueError", "determinism_check should be one of", kNone, kNone},
    {"debug with contexts", "ValueError", "debug=True is incompatible with non-default context_fn",
     kNone, kNone},
    {"operators differ", "CheckpointError",
     "Detected non-determinism while running activation checkpointing", kNone, kNone},
    {"exception swallowed", "RuntimeError",
     "suppressed an exception raised during the checkpointed forward", kNone, kNone},
    {"no step", "ValueError", "range() arg 3 must not be zero", kNone, kNone},
    {"division by zero", "ZeroDivisionError", "division", kNone, kNone},
    {"initialized late", "RuntimeError", "device state was initialized in the forward pass", kNone,
     kNone},
    {"not a policy", "TypeError", "policy_fn_or_list must be either a function or a list of ops",
     kNone, kNone},
    {"not in storage", "RuntimeError", "encountered during backward but not found in storage",
     kNone, kNone},

    // What only the engine says.
    {"segments out of range", kNone, kNone, "invalid_argument", "segments must be in"},
    {"no functions", kNone, kNone, "invalid_argument", "at least one function expected"},
    {"input changed by the function", kNone, kNone, "invalid_argument",
     "the function changed its input"},
    {"read tensor changed", kNone, kNone, "CheckpointError",
     "was changed in place since the forward"},
    {"changed since the recomputation", kNone, kNone, "CheckpointError",
     "was changed by an in-place operation since the recomputation"},
    {"another op", kNone, kNone, "CheckpointError",
     "the recomputation does not do what the forward did"},
    {"more ops", kNone, kNone, "CheckpointError",
     "the recomputation runs more ops than the forward"},
    {"fewer ops", kNone, kNone, "CheckpointError", "is missing; the function must do the same"},
};

}  // namespace

std::span<const ErrorKind> error_kinds() { return kKinds; }

}  // namespace rematch::golden
