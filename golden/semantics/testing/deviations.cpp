#include "golden/semantics/testing/deviations.h"

#include <sstream>
#include <stdexcept>

namespace rematch::golden {
namespace {

// A reason, and below it the facts that have it:
//   ID: FACT: what PyTorch does -> what the engine does
//   ID: FACT: what PyTorch does, where the engine has no counterpart
//   ID, where it has none of the whole probe
constexpr std::string_view kTable = R"(
a number of segments without a meaning is refused, with the range that has one
  PT3.degenerate: more_segments_than_layers_error: "no step" -> "segments out of range"
  PT3.degenerate: negative_segments_error: "no error" -> "segments out of range"
  PT3.degenerate: negative_segments_runs: "111"
  PT3.degenerate: no_layers_error: "no step" -> "no functions"
  PT3.degenerate: no_layers_two_segments_error: "no step" -> "no functions"
  PT3.degenerate: no_segments_error: "division by zero" -> "segments out of range"
options are one struct, which is passed on whole
  PT5.interface
  PT5.module
functions take and return a flat list of tensors
  RE1.other_arguments
  RE6.arguments
  RE6.results
  N9.keyword_changed
  N9.nested_changed
  N9.hooks: keyword: 0
  N9.hooks: list: 0
  N9.kept: keyword: true
  N9.kept: list: true
  RE4.no_tensor_that_trains
  N5.objects
  N9.keywords
  N19.other_outputs
a backward that reaches nothing is refused; PyTorch fills in zeros
  RE5.only_detached_used: backward_error: "no error" -> "no output requires grad"
  RE5.only_detached_used: gradient_is_zero: true -> false
there are no keyword arguments, contexts or debug mode to refuse
  RE7.refused
  N18.order
  N18.through_contexts
what a policy keeps is never shown to hooks; there is no option for it
  RE7.respect_saved_tensors_hooks
  SE8.surrounding_hooks: by_default_warnings: ["hooks bypassed"]
  SE8.surrounding_hooks: bypassed_packs: 1
  SE8.surrounding_hooks: bypassed_unpacks: 1
  SE8.surrounding_hooks: bypassed_warnings: []
  SE8.surrounding_hooks: respected_packs: 2
  SE8.surrounding_hooks: respected_unpacks: 2
  SE8.surrounding_hooks: respected_warnings: []
  SE8.nested
  SE8.unsaved
choices are enums, which cannot be misspelt
  RE7.ignored: unknown_determinism_check_error: "no error"
  N7.unknown_check
  SE1.policies: false: 1
  SE1.policies: true: 0
a variant is always chosen: options name it, and their default is non-reentrant
  RE7.variant_not_chosen
hooks run on gradients as they arrive, none after accumulation
  RE8.accumulation_hook
a function that changes its input in place is refused in the forward: its recomputation would do so once more
  RE10.changes_an_argument_that_trains: reentrant_backward_error: "leaf written in place" -> "input changed by the function"
  RE10.changes_an_argument_that_trains: reentrant_forward_error: "no error" -> "input changed by the function"
  RE10.changes_a_constant_argument: reentrant_gradient: 45 -> "error: input changed by the function"
  N11.own_argument_changed: reentrant: "error: leaf written in place" -> "error: input changed by the function"
  N11.own_constant_changed: reentrant: "silently wrong" -> "error: input changed by the function"
gradients are not recorded, so there is nothing to differentiate twice
  RE13.create_graph
  N15.double_backward
ops are compared, by name, arguments, shapes and dtypes, and before anything else that differs
  N1.positions: compared: ["device","dtype","shape"]
  N6.fewer: reentrant: "no error" -> "fewer ops"
  N6.fewer: with_early_stop: "fewer saved" -> "fewer ops"
  N6.fewer: without: "fewer saved" -> "fewer ops"
  N6.more: reentrant: "no error" -> "more ops"
  N6.more: without: "more saved" -> "more ops"
  N6.other_shape: reentrant: "no error" -> "another op"
  N6.other_shape: with_early_stop: "other metadata" -> "another op"
  N6.other_shape: without: "other metadata" -> "another op"
  N6.other_dtype: reentrant: "no error" -> "another op"
  N6.other_dtype: with_early_stop: "other metadata" -> "another op"
  N6.other_dtype: without: "other metadata" -> "another op"
  N6.freed_holder: later_backward_error: "no error" -> "another op"
  N6.values: non_reentrant: "silently wrong" -> "error: another op"
  N6.values: reentrant: "silently wrong" -> "error: another op"
  N7.none: default: "error: other metadata" -> "error: another op"
  N7.inner_gradient: with_early_stop: "other metadata" -> "another op"
  N7.inner_gradient: without: "no error" -> "another op"
  N18.mismatch_then_again: first_error: "other metadata" -> "another op"
  SE5.recomputation_differs: another_operator: "not in storage" -> "another op"
  SE5.recomputation_differs: once_less: "fewer saved" -> "fewer ops"
  SE5.recomputation_differs: once_more: "not in storage" -> "more ops"
  V.eval_between_dropout: non_reentrant: "error: fewer saved" -> "error: fewer ops"
  V.eval_between_dropout: reentrant: "silently wrong" -> "error: fewer ops"
  V.eval_between_dropout_then_tanh: non_reentrant: "error: fewer saved" -> "error: another op"
  V.eval_between_dropout_then_tanh: reentrant: "silently wrong" -> "error: another op"
  V.eval_between_batch_norm: non_reentrant: "error: other metadata" -> "error: another op"
  V.eval_between_batch_norm: reentrant: "silently wrong" -> "error: another op"
  V.flag_same_shapes: non_reentrant: "silently wrong" -> "error: another op"
  V.flag_same_shapes: reentrant: "silently wrong" -> "error: another op"
  V.flag_other_shapes: non_reentrant: "error: other metadata" -> "error: another op"
  V.flag_other_shapes: reentrant: "silently wrong" -> "error: another op"
  V.flag_more_saved: reentrant: "silently wrong" -> "error: more ops"
  V.flag_fewer_saved: non_reentrant: "error: fewer saved" -> "error: fewer ops"
  V.flag_fewer_saved: reentrant: "silently wrong" -> "error: fewer ops"
  V.python_random: non_reentrant: "silently wrong" -> "error: another op"
  V.python_random: reentrant: "silently wrong" -> "error: another op"
a tensor is saved after the kernel that makes it, so that a recomputation which stops there has all of it
  N3.input_saved: kernel_runs_in_recomputation: 0 -> 1
  N3.two_ops: kernel_runs_in_recomputation: 1 -> 2
  N3.weights_after: kernel_runs_in_recomputation: 1 -> 2
  N4.save_then_fill: with_early_stop: "silently wrong" -> "right"
unused recomputed tensors are freed with their backward or group; PyTorch keeps it as long as the graph
  N5.leftovers: alive_while_the_graph_is: 1 -> 0
  N16.leftovers: alive_after_the_group: 1 -> 0
without a check a tensor that the recomputation did not make is missed when it is asked for
  N6.fewer: with_early_stop_unchecked: "fewer saved" -> "unpacked twice"
  N6.fewer: without_unchecked: "fewer saved" -> "unpacked twice"
without a check an additional saved tensor is ignored
  N6.more: without_unchecked: "more saved" -> "no error"
a node never reads a tensor of another shape or dtype, check or not
  N6.other_shape: with_early_stop_unchecked: "no error" -> "other metadata"
  N6.other_shape: without_unchecked: "no error" -> "other metadata"
  N6.other_dtype: with_early_stop_unchecked: "no error" -> "other metadata"
  N6.other_dtype: without_unchecked: "no error" -> "other metadata"
  N7.none: none: "right" -> "error: other metadata"
  N7.recomputed_tensors
a model lives on one device, and there is none without memory
  N6.other_device
  N1.meta
tensors are dense and row-major
  N6.other_strides
there is no debug mode: errors always name the op, its place and its tensor
  N8.options
  N6.message
  N8.changes_nothing
  N8.report
  N8.scopes
  N8.two_backwards
  SE5.message
the version of every tensor from outside that an op reads is compared
  N9.captured_changed: non_reentrant: "silently wrong" -> "error: read tensor changed"
  N9.captured_changed: reentrant: "silently wrong" -> "error: read tensor changed"
  N10.weight_changed: non_reentrant: "silently wrong" -> "error: read tensor changed"
  N10.weight_changed: reentrant: "silently wrong" -> "error: read tensor changed"
  N10.buffer_changed: non_reentrant: "silently wrong" -> "error: read tensor changed"
  N10.buffer_changed: reentrant: "silently wrong" -> "error: read tensor changed"
  N10.optimizer_step: non_reentrant: "silently wrong" -> "error: read tensor changed"
  N10.optimizer_step: reentrant: "silently wrong" -> "error: read tensor changed"
the memory of a tensor cannot be exchanged for another
  N10.weight_replaced
a recomputed tensor keeps its version, as any saved tensor does
  N10.weight_changed_in_backward: non_reentrant: "silently wrong" -> "error: changed since the recomputation"
  N16.weights_changed_in_a_group: same_as_without_a_group: false -> "error: changed since the recomputation"
a recomputation stands for itself: hooks around a backward do not see what it saves
  N13.hooks_around_backward: reentrant_packs: 2 -> 0
a group is a scope, and is entered once
  N16.same_group_again
there are no contexts around forward and recomputation; policies take their place
  N17.grad_disabled: contexts_entered: 0
  N17.grad_disabled: contexts_made: 1
  N18.contexts
  N18.swallowed
with recording off the function just runs, and may record by itself
  N17.recording_inside: reentrant: [1, 1, false] -> [1, 1, true]
random state is not captured where nothing will be recomputed
  N17.grad_disabled: non_reentrant_random_state_read: 1 -> 0
  N17.grad_disabled: reentrant_random_state_read: 1 -> 0
every named stream is captured, not the default one alone
  AM1.own_generator: non_reentrant_recomputation_begins_at_entry: false -> true
  AM1.own_generator: non_reentrant_state_kept_by_backward: false -> true
  AM1.own_generator: reentrant_recomputation_begins_at_entry: false -> true
  AM1.own_generator: reentrant_state_kept_by_backward: false -> true
the only dtype to cast to is bfloat16
  AM4.float16
  AM4.around_both
casts are part of the op that needs them, and are not counted
  AM4.weight_cast_cold: plain_forward_casts: 2
  AM4.weight_cast_cold: reentrant_forward_casts: 2
  AM4.weight_cast_cold: reentrant_recomputation_casts: 2
  AM4.weight_cast_cold: non_reentrant_forward_casts: 2
  AM4.weight_cast_cold: non_reentrant_recomputation_casts: 2
  AM4.weight_cast_warm: plain_forward_casts: 0
  AM4.weight_cast_warm: reentrant_forward_casts: 0
  AM4.weight_cast_warm: reentrant_recomputation_casts: 2
  AM4.weight_cast_warm: non_reentrant_forward_casts: 0
  AM4.weight_cast_warm: non_reentrant_recomputation_casts: 2
the graph is the same whether a cast was in the cache or not
  AM4.weight_cast_warm_selective: verdict: "error: not in storage" -> "right"
  AM4.weight_cast_warm_selective: verdict_without_early_stop: "error: not in storage" -> "right"
new tensors take their device from the ledger, and ops cannot be overridden by modes
  AM5.device_context
  AM5.device_context_of_backward
  AM5.function_mode
  AM5.nested_devices
on the CPU the engine has no such switch: dtypes are given, kernels fixed, modules without hooks
  AM6.default_dtype
  AM6.deterministic_algorithms
  AM6.matmul_precision
  AM6.attention_backend
  AM6.module_hook
C++ has no context variables
  AM6.context_variable: context_non_reentrant: "the backward's"
  AM6.context_variable: context_reentrant: "the backward's"
a policy is a function
  SE1.lists
no policy moves results to another memory
  SE1.policies: must_cpu_offload: 1
  SE1.policies: prefer_cpu_offload: 1
a policy is not told of recomputations, since none asks it
  SE2.calls: ever_told_of_a_recomputation: false
views are made again, whatever a policy says, so it is not asked about them
  SE3.ignored: asked: ["tanh","view","sum"] -> ["tanh","sum"]
  SE6.views
nothing permits changing what a policy kept
  SE6.changed: allowed: "silently wrong"
  SE6.written
a random op whose result is kept advances its stream in the recomputation, too
  SE9.saved_then_recomputed: second_mask_in_recomputation: "the first's" -> "the second's"
  SE9.saved_then_recomputed: verdict: "silently wrong" -> "right"
a recomputation does not update running statistics
  V.batch_norm_statistics: non_reentrant: 2 -> 1
  V.batch_norm_statistics: non_reentrant_with_an_op_after: 2 -> 1
  V.batch_norm_statistics: non_reentrant_without_early_stop: 2 -> 1
  V.batch_norm_statistics: reentrant: 2 -> 1
a policy is told op and index: operators have no options, effects, or results that are no tensors
  SE2.told
  SE2.by_result
  SE7.results
  SE11.effects
an exception of C++ has no identity
  N18.as_it_is
functions are wrapped where they are called: there are no decorators
  DE.function
  DE.method
  DE.options
random streams are ambient, and belong to no device
  DV.default_type
  DV.initialized_late
  DV.recomputation
  DV.several_types
  DV.states
there are no such helpers
  HE.check_backward_validity
  HE.checkpoint_error
  HE.create_selective_checkpoint_contexts
  HE.detach_variable
  HE.noop_context_fn
)";

Deviation parsed(const std::string& line, const std::string& why) {
  const std::size_t fact = line.find(": ");
  if (fact == std::string::npos) return {line.substr(2), "", nullptr, std::nullopt, why};
  const std::size_t theirs = line.find(": ", fact + 2);
  const std::size_t ours = line.find(" -> ", theirs);
  if (theirs == std::string::npos || why.empty()) {
    throw std::logic_error("[golden] a reason and ID: FACT: JSON expected, got " + line);
  }
  Deviation known;
  known.id = line.substr(2, fact - 2);
  known.fact = line.substr(fact + 2, theirs - fact - 2);
  known.theirs = nlohmann::json::parse(
      line.substr(theirs + 2, ours == std::string::npos ? ours : ours - theirs - 2));
  if (ours != std::string::npos) known.ours = nlohmann::json::parse(line.substr(ours + 4));
  known.why = why;
  return known;
}

}  // namespace

const std::vector<Deviation>& deviations() {
  static const std::vector<Deviation> all = [] {
    std::vector<Deviation> result;
    std::istringstream text{std::string(kTable)};
    std::string why;
    for (std::string line; std::getline(text, line);) {
      if (line.starts_with("  ")) {
        result.push_back(parsed(line, why));
      } else {
        why = line;
      }
    }
    return result;
  }();
  return all;
}

const Deviation* deviation(std::string_view id, std::string_view fact) {
  for (const Deviation& known : deviations()) {
    if (known.id == id && known.fact == fact) return &known;
  }
  return nullptr;
}

}  // namespace rematch::golden
