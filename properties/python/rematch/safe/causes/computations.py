"""Causes of recomputations that compute something else than their forward, and of regions that get no gradient."""

from collections.abc import Sequence

from rematch.safe.causes import rules, states
from rematch.safe.causes.cause import Cause, ComputationRule
from rematch.safe.compare import Change
from rematch.safe.evidence import WHICH, Evidence
from rematch.safe.state import BUFFER, ENVIRONMENT, MODE
from rematch.safe.target_run import GRADIENT
from rematch.safe.values import Identity

NO_INPUT = Cause(
    "no-input-requires-grad",
    "No input requires grad, so that the reentrant variant gives the weights no gradient",
    "Use use_reentrant=False, or call requires_grad_() on the input "
    "(model.enable_input_require_grads() in Transformers).",
)
DETACHED_OUTPUT = Cause(
    "detached-output",
    "{name} does not require grad in the plain run, but does in a reentrant checkpoint, which marks all "
    "floating-point outputs",
    "Use use_reentrant=False, or call detach() on the output again outside of the checkpoint.",
)
BACKWARD_WITHIN = Cause(
    "backward-within",
    "The forward computes gradients itself, which a reentrant forward cannot do: it runs under no_grad",
    "Use use_reentrant=False, or wrap that part in torch.enable_grad().",
)
NESTED_INPUT = Cause(
    "nested-input",
    "{name} is a keyword argument, or inside a container: the reentrant variant gives gradients only to tensors that "
    "are themselves positional arguments",
    "Use use_reentrant=False, or pass tensors as positional arguments.",
)
NESTED_OUTPUT = Cause(
    "nested-output",
    "{name} is returned inside a container: the reentrant variant gives gradients only to tensors that are returned "
    "directly, alone or in a tuple",
    "Use use_reentrant=False, or return a tuple of tensors.",
)
SIDE_OUTPUT = Cause(
    "side-output",
    "The forward leaves behind {name}: in a reentrant checkpoint it has no gradient",
    "Use use_reentrant=False, or return it as an output (an auxiliary loss that is read from an attribute trains "
    "nothing).",
)
NOT_PRESERVED = Cause(
    "rng-not-preserved",
    "The recomputation draws other random numbers ({name}): the random state is not preserved",
    "Use preserve_rng_state=True, the default.",
)
SYSTEM = Cause(
    "clock-or-entropy",
    "The forward computes with {name}, and the recomputation reads other numbers",
    "Read it outside of the checkpoint, and pass the number in as an argument.",
)
GRAD_MODE = Cause(
    "grad-mode",
    "The forward and its recomputation take different paths ({name}): a reentrant forward runs under no_grad, and its "
    "recomputation runs on detached inputs",
    "Use use_reentrant=False; do not check torch.is_grad_enabled(), requires_grad or is_leaf within a region.",
)
FAST_PATH = Cause(
    "fast-path",
    "PyTorch takes a fast path when gradients are off ({name}), which rounds differently: a reentrant forward runs "
    "under no_grad",
    "Use use_reentrant=False, or torch.backends.mha.set_fastpath_enabled(False).",
)
KERNEL_BY_MODE = Cause(
    "kernel-by-grad-mode",
    "{name} computes something else when gradients are off: a reentrant forward runs under no_grad",
    "Use use_reentrant=False.",
)
UNFILLED = Cause(
    "saved-before-filled",
    "{name} saves a tensor for the backward and fills it later, or never: the recomputed values are not those that the "
    "forward used",
    "Leave the operator out of the checkpoint.",
)
CACHE = Cause(
    "cache-filled",
    "The forward fills {name}, and the recomputation reads it instead of computing",
    "Fill the cache before the checkpoint, or do not use it inside: a result kept from the forward holds no graph of "
    "the recomputation.",
)
WRITTEN_LATER = Cause(
    "written-in-place",
    "A tensor that the backward needs was written in place ({name})",
    "The module writes in place to a tensor that checkpointing keeps: clone() the input first, or use the "
    "out-of-place operator.",
)
VIEW = Cause(
    "view-written",
    "What a region returns is a view, and is written in place",
    "Return clone() of the view, or use use_reentrant=False.",
)
GRAPH_SHARED = Cause(
    "graph-shared",
    "Two recomputations backpropagate through the same graph outside of them ({name}): a reentrant region uses a "
    "tensor that is not one of its arguments",
    "Pass the tensor as an argument, or use use_reentrant=False.",
)
RAGGED = Cause(
    "ragged-size",
    "The forward makes a nested tensor, and the recomputation makes another one: each has a ragged size with its own "
    "symbol, and PyTorch compares the symbols",
    "Pass the nested tensor, or its offsets, as an argument: nested tensors have the same size if they share their "
    "offsets. Hooks that offload saved tensors replace the offsets, too.",
)
POLICY = Cause(
    "policy",
    "The selective policy does not fit the recomputation: {name}",
    "A policy must decide the same for the same operator in the forward and in the recomputation, and keep nothing "
    "that is written in place afterwards.",
)
KEPT_WRITTEN = Cause(
    "kept-then-written",
    "With {name}, gradients are wrong without an error: what a policy keeps is written in place afterwards",
    "Do not let a policy keep results that are written in place afterwards; checkpoint modules that write in place, "
    "such as nn.GRU, without a policy.",
)
CONTEXT = Cause(
    "context-closed",
    "{name} was set while the forward ran, and is not set in the recomputation",
    "Enter the context within the function that is checkpointed, or exit it only after the backward. checkpoint() "
    "restores autocast and random states, and nothing else.",
)
SUBCLASS = Cause(
    "subclass",
    "A tensor subclass behaves differently in the recomputation ({name}): backward() runs under its __torch_function__",
    "Call backward() on a plain tensor, loss.as_subclass(torch.Tensor), or unwrap the subclass before the checkpoint.",
)
TRANSFORM = Cause(
    "transform-within",
    "The forward runs {name}, which refuses the hooks of saved tensors that use_reentrant=False sets",
    "Use use_reentrant=True, or leave that part out of the checkpoint.",
)
SWALLOWS = Cause(
    "swallows-early-stop",
    "The forward catches the exception with which PyTorch stops a recomputation that has what it needs",
    "Catch only the exceptions that you expect, not Exception or all; or run it within "
    "set_checkpoint_early_stop(False).",
)
PARAMETER_HOOK = Cause(
    "hook-of-parameter",
    "A hook of {name} runs once for each region that uses it, on that region's part of the gradient, because the "
    "recomputation of each has a backward of its own",
    "Use use_reentrant=False, or change gradients after backward() has returned.",
)
NAMES = Cause(
    "names-changed",
    "Wrappers for checkpointing rename parameters: named_parameters() says {name}, and state_dict() does not",
    "Choose parameters by name (optimizer groups, parameters without weight decay) before wrapping, or strip the "
    "wrapper's part of the names; torch.distributed._composable.checkpoint() renames nothing.",
)
SWITCH = Cause(
    "switch-changes-more",
    "The model's own switch changes more than what is checkpointed: its forward computes something else ({name})",
    "Compare the code behind the switch with the code without it: arguments that are left out or replaced there, such "
    "as caches, masks, prefixes.",
)
SWITCH_CUTS = Cause(
    "switch-cuts-graph",
    "The model's own switch cuts the graph: its forward computes the same, and {name} gets no gradient",
    "Look for detach(), .data or no_grad() in the code behind the switch.",
)
SWITCH_LEAF = Cause(
    "switch-makes-leaf",
    "The model's own switch makes the output of its embedding require grad, for the reentrant variant; if the "
    "embedding is frozen, that output is a leaf, and the model writes to it in place",
    "Call model.disable_input_require_grads() after the switch in Transformers, or let the embedding train.",
)
OFFLOADED = Cause(
    "offloaded-strides",
    "Hooks that offload saved tensors return them with other strides. checkpoint() keeps the inputs of a region "
    "through such hooks, and an operator such as nn.Linear saves other tensors if its input has other strides",
    "Call contiguous() on what enters the region, or offload with hooks that keep strides (save_on_cpu() with "
    "pin_memory=True does not).",
)
SWITCH_DROPS = Cause(
    "switch-drops-output",
    "With its own switch on, the model does not return {name}",
    "Caches are often turned off with it. Compare a model without them: use_cache=False in Transformers.",
)
SWITCH_ADDS = Cause(
    "switch-adds-output",
    "With its own switch on, the model also returns {name}",
    "Compare the code behind the switch with the code without it.",
)
SWITCH_HANDS = Cause(
    "switch-hands-others",
    "With its own switch on, the model passes other arguments to {name}",
    "Compare the call of checkpoint() with the one without: names, order and defaults of the arguments.",
)

ENDLESS = Cause(
    "does-not-end",
    "The checkpointed run does not end, and the plain run does: {name}",
    "If the region returns a tensor that it did not compute, such as a parameter, return clone() of it, or use "
    "use_reentrant=False; release locks in a with statement, as early stop leaves the forward by an exception.",
)
SET_BY_CALLERS = Cause(
    "set-by-callers",
    "The forward reads {name}, which callers set: if it is set again before the backward, the recomputation reads the "
    "later value",
    "Pass it in as an argument, or set it again only after backward() has returned, and not between two forwards "
    "whose losses share a backward.",
)
COMPILED = Cause(
    "compiler",
    "Checkpointing changes what the compiled target computes, but not what the target computes without the compiler",
    "Compile it without the checkpoint, or checkpoint it without compiling; please report it to PyTorch's issue "
    "tracker.",
)


RULES: Sequence[tuple[Cause, ComputationRule]] = (
    (KEPT_WRITTEN, lambda e: e.scenario.policy_text if e.right_otherwise and e.fork is None else None),
    (RAGGED, rules.ragged),
    (OFFLOADED, rules.offloaded),
    (DETACHED_OUTPUT, rules.detached_output),
    (NO_INPUT, rules.no_input),
    (NESTED_INPUT, rules.nested_input),
    (NESTED_OUTPUT, rules.nested_output),
    (SIDE_OUTPUT, rules.side_output),
    (BACKWARD_WITHIN, rules.backward_within),
    (POLICY, rules.text("selective activation checkpoint", "not found in storage", "selective checkpoint")),
    (SWITCH_LEAF, rules.leaf_by_switch),
    (TRANSFORM, lambda e: "a transform of torch.func" if "yet support saved tensor hooks" in e.error else None),
    (SWALLOWS, lambda e: "" if "early_stop is set" in e.error else None),
    (GRAPH_SHARED, rules.shared),
    (VIEW, rules.text("is a view and is being modified", "view was created inside a custom Function")),
    (SYSTEM, lambda e: e.again.reads[0] + "()" if e.again is not None and e.again.reads else None),
    (states.NUMPY_RANDOM, lambda e: rules.moved(e, "numpy")),
    (states.PYTHON_RANDOM, lambda e: rules.moved(e, "random")),
    (states.OWN_GENERATOR, rules.own_generator),
    (NOT_PRESERVED, rules.not_preserved),
    (states.MODE_CHANGED, rules.entered(MODE)),
    (states.ENVIRONMENT_CHANGED, rules.entered(ENVIRONMENT)),
    (SUBCLASS, rules.subclass),
    (states.GLOBAL_STATE, rules.sets_switch),
    (CONTEXT, rules.context),
    (UNFILLED, rules.unfilled),
    (CACHE, rules.cache),
    (FAST_PATH, rules.fast_path),
)
"""The conditions of these rules exclude each other: their order means nothing."""

WITHOUT_STATES: Sequence[tuple[Cause, ComputationRule]] = (
    (states.ARGUMENT_WRITTEN, rules.input_written),
    (WRITTEN_LATER, rules.in_place),
    (PARAMETER_HOOK, rules.hook_of_parameter),
    (KERNEL_BY_MODE, rules.kernel_by_mode),
    (GRAD_MODE, rules.text("register a hook on a tensor that doesn't require gradient")),
    (GRAD_MODE, rules.grad_mode),
    (SWITCH, rules.switch),
    (SWITCH_CUTS, rules.cut),
)
"""Rules that also require that no state that the recomputation found changed is the cause."""


def cause_of_computation(evidence: Evidence) -> tuple[Cause, str] | None:
    """Returns the cause of other outputs or gradients, or of an error, and what it is about; None if undecided."""
    return _by(RULES, evidence) or _by_state(evidence) or _by(WITHOUT_STATES, evidence)


def _by(rules: Sequence[tuple[Cause, ComputationRule]], evidence: Evidence) -> tuple[Cause, str] | None:
    found = ((cause, rule(evidence)) for cause, rule in rules)
    return next(((cause, about) for cause, about in found if about is not None), None)


def _by_state(evidence: Evidence) -> tuple[Cause, str] | None:
    """Returns the cause and the name of a changed state that makes the recomputation compute something else."""
    for change in _suspects(evidence):
        change = states.in_container(change, evidence.entered)
        cause = states.cause_of_state(change, evidence)
        if cause is not None:
            return cause, change.name.removesuffix(WHICH)
    return None


_LIKELY_BESIDE = {BUFFER: 1, GRADIENT: 2}
"""Kinds of states that change in most runs, and so decide little."""


def _suspects(e: Evidence) -> list[Change]:
    """Returns the changed states, beginning with those that the first differing operator read."""
    source = e.fork.source if e.fork is not None else ""
    again = e.fork.again.sources if e.fork is not None and e.fork.again is not None else ()
    # The forward read no gradient where there was none.
    read = {source, *(name for name in again if name.endswith(".grad"))} - {""}
    changed = [c for c in (*e.entered, *e.gradients) if not c.name.startswith(rules.RANDOM)]
    others = [c for c in changed if type(c.before) is Identity]
    if others:
        return others
    found = [c for c in changed if c.name in read]
    if found:
        return found
    if e.fork is not None and e.fork.same_operator and e.fork.source:
        return []
    if e.fork is None and not e.error:
        changed = [c for c in changed if c.kind not in _LIKELY_BESIDE]
    return sorted(changed, key=lambda c: (_LIKELY_BESIDE.get(c.kind, 0), not isinstance(c.before, bool)))
