"""Causes of recomputations that compute something else than their forward did, and of regions that get no gradient."""

from __future__ import annotations

from collections.abc import Sequence

from rematch.safe.causes import states
from rematch.safe.causes.cause import Cause, ComputationRule
from rematch.safe.compare import Change
from rematch.safe.evidence import WHICH, Evidence, Identity
from rematch.safe.state import ARGUMENT, BUFFER, ENVIRONMENT, GENERATOR, MODE, PARAMETER, Extent, Made

_RANDOM = "the random state of "
_LEAF_WRITTEN = "a leaf Variable that requires grad is being used in an in-place"

NO_INPUT = Cause(
    "no-input-requires-grad",
    "No input requires grad, so that the reentrant variant gives the weights no gradient",
    "Use use_reentrant=False, or call requires_grad_() on the input "
    "(model.enable_input_require_grads() in Transformers).",
)
DETACHED_OUTPUT = Cause(
    "detached-output",
    "{name} does not require grad in the plain run, and does in a reentrant checkpoint, which marks all floating "
    "outputs",
    "Use use_reentrant=False, or detach() the output outside of the checkpoint once more.",
)
BACKWARD_WITHIN = Cause(
    "backward-within",
    "The forward differentiates by itself, which a reentrant forward cannot: it runs under no_grad",
    "Use use_reentrant=False, or wrap that part in torch.enable_grad().",
)
NESTED_INPUT = Cause(
    "nested-input",
    "{name} is within a container: the reentrant variant gives gradients to tensors that are arguments themselves",
    "Use use_reentrant=False, or pass tensors as positional arguments.",
)
NESTED_OUTPUT = Cause(
    "nested-output",
    "{name} is returned within a container: the reentrant variant records only tensors that are returned themselves, "
    "alone or in a tuple",
    "Use use_reentrant=False, or return a tuple of tensors.",
)
SIDE_OUTPUT = Cause(
    "side-output",
    "The forward leaves {name} on the module: in a reentrant checkpoint it has no gradient",
    "Use use_reentrant=False, or return it as an output (an auxiliary loss that is read from the module trains "
    "nothing).",
)
NOT_PRESERVED = Cause(
    "rng-not-preserved",
    "The recomputation draws other random numbers ({name}): the random state is not preserved",
    "Use preserve_rng_state=True, the default.",
)
GRAD_MODE = Cause(
    "grad-mode",
    "The forward takes another way where gradients are off ({name}): a reentrant forward runs under no_grad",
    "Use use_reentrant=False; do not ask torch.is_grad_enabled() or requires_grad within a region.",
)
FAST_PATH = Cause(
    "fast-path",
    "PyTorch takes a fast path where gradients are off ({name}), which rounds differently: a reentrant forward runs "
    "under no_grad",
    "Use use_reentrant=False, or torch.backends.mha.set_fastpath_enabled(False).",
)
KERNEL_BY_MODE = Cause(
    "kernel-by-grad-mode",
    "{name} computes something else where gradients are off: a reentrant forward runs under no_grad",
    "Use use_reentrant=False.",
)
UNFILLED = Cause(
    "saved-before-filled",
    "{name} saves memory that it fills later, or not at all: what is recomputed is not what was used",
    "Leave the operator out of the checkpoint.",
)
CACHE = Cause(
    "cache-filled",
    "The forward fills {name}, and the recomputation reads it instead of computing",
    "Fill the cache before the checkpoint, or compute without it within: a result that is kept from the forward holds "
    "no graph of the recomputation.",
)
WRITTEN_LATER = Cause(
    "written-in-place",
    "A tensor that the backward needs was written in place ({name})",
    "The module writes to a tensor in place that checkpointing keeps: clone() the input first, "
    "or use the operator that is not in place.",
)
VIEW = Cause(
    "view-written",
    "What a region returns is a view, and is written in place",
    "Return clone() of the view, or use use_reentrant=False.",
)
GRAPH_SHARED = Cause(
    "graph-shared",
    "Two recomputations go back through one graph outside of them ({name}): a reentrant region uses a tensor that is "
    "no argument of it",
    "Pass the tensor as an argument, or use use_reentrant=False.",
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
    "Keep the operators of this module out of the policy: write it over what the module runs between them, or exclude "
    "modules that write in place, such as nn.GRU.",
)
CONTEXT = Cause(
    "context-closed",
    "{name} was set while the forward ran, and is not set in the recomputation",
    "Enter the context within the function that is checkpointed, or leave it after the backward. checkpoint() restores "
    "autocast and random states, and nothing else.",
)
SUBCLASS = Cause(
    "subclass",
    "A tensor subclass acts otherwise in the recomputation ({name}): backward() runs under its __torch_function__",
    "Call backward() on a plain tensor, loss.as_subclass(torch.Tensor), or unwrap the subclass before the checkpoint.",
)
SWITCH = Cause(
    "switch-changes-more",
    "The model's own switch changes more than what is checkpointed: its forward computes something else ({name})",
    "Compare the code behind the switch with the code without it: arguments that are left out or replaced there, such "
    "as caches, masks, prefixes.",
)
SWITCH_LEAF = Cause(
    "switch-makes-leaf",
    "The model's own switch makes the output of its embedding require grad, for the reentrant variant; where the "
    "embedding is frozen that output is a leaf, to which the model writes in place",
    "Call model.disable_input_require_grads() after the switch in Transformers, or let the embedding train.",
)
OFFLOADED = Cause(
    "offloaded-strides",
    "Hooks that offload saved tensors give them back with other strides, checkpoint() keeps the inputs of a region by "
    "such hooks, and an operator such as nn.Linear saves other tensors where its input has other strides",
    "Call contiguous() on what enters the region, or offload by hooks that keep strides (save_on_cpu() with "
    "pin_memory=True does not).",
)
SWITCH_DROPS = Cause(
    "switch-drops-output",
    "With its own switch on, the model does not return {name}",
    "Caches are often turned off with it. Compare a model without them: use_cache=False in Transformers.",
)
NOT_CHECKPOINTED = Cause(
    "not-checkpointed",
    "{name}: nothing is recomputed there, and nothing saved",
    "Look at the condition before the call of checkpoint(): often it asks self.training, or stands in one of several "
    "kinds of blocks alone.",
)


def _absent(evidence: Evidence) -> list[Change]:
    """Gradients that are there in the plain run alone."""
    return [c for c in evidence.differences if c.kind == "gradient" and c.after is None and c.before is not None]


def _flags(evidence: Evidence) -> list[Change]:
    return [c for c in evidence.differences if c.kind == "flag"]


def _detached_output(e: Evidence) -> str | None:
    if "none of output has requires_grad=True" in e.error:
        return "The output"
    names = [c.name for c in _flags(e) if c.after and c.name.startswith("output")]
    return names[0] if e.reentrant and names else None


def _backward_within(e: Evidence) -> str | None:
    refused = "does not require grad and does not have a grad_fn" in e.error
    return "" if e.reentrant and refused and e.again is None else None


def _nested_output(e: Evidence) -> str | None:
    if not e.reentrant:
        return None
    names = [c.name.split(",")[0] for c in _flags(e) if c.name.startswith("output")]
    nested = [n for n in names if n.count("[") > 1 or "." in n or "['" in n or "output[" in n and e.plain.is_list]
    return nested[0] if nested else None


def _nested_input(e: Evidence) -> str | None:
    region = e.forward
    if not e.reentrant or region is None or region.takes_grad or not region.nested_grad or not _absent(e):
        return None
    names = [c.name.removeprefix("gradient of ") for c in _absent(e)]
    return next((n for n in names if n.startswith("input ")), "the input")


def _side_output(e: Evidence) -> str | None:
    names = [c.name for c in _flags(e) if not c.name.startswith("output")]
    return names[0] if names else None


def _no_input(e: Evidence) -> str | None:
    region = e.forward
    if not e.reentrant or region is None or region.takes_grad or region.nested_grad:
        return None
    return "" if _absent(e) or _flags(e) or "does not require grad and does not have a grad_fn" in e.error else None


def _moved(e: Evidence, name: str) -> str | None:
    return "" if any(c.name == _RANDOM + name for c in e.entered) else None


def _own_generator(e: Evidence) -> str | None:
    names = [c.name for c in e.entered if c.kind == GENERATOR and not c.name.startswith(_RANDOM)]
    return names[0] if names else None


def _not_preserved(e: Evidence) -> str | None:
    if not any(c.name.startswith((_RANDOM + "PyTorch", _RANDOM + "cuda")) for c in e.entered):
        return None
    fork = e.fork
    op = fork.again if fork is not None else None
    return str(op) if op is not None else ""


def _context(e: Evidence) -> str | None:
    names = [n for n in e.ambient if n not in ("grad mode", "functions of subclasses", "inference mode")]
    return names[0] if names else None


def _subclass(e: Evidence) -> str | None:
    if "functions of subclasses" in e.ambient:
        return str(e.fork) if e.fork else "its functions are switched off"
    return None


def _entered(*kinds: str) -> ComputationRule:
    def rule(e: Evidence) -> str | None:
        names = [c.name for c in e.entered if c.kind in kinds]
        source = e.fork.source if e.fork is not None else ""
        return source if source in names else (names[0] if names else None)

    return rule


def _cache(e: Evidence) -> str | None:
    """Less runs than before, and something was empty before that is filled now."""
    fork = e.fork
    ran = len(e.forward.ops) if e.forward is not None else 0
    again = len(e.again.ops) if e.again is not None else 0
    fewer = again < ran or (fork is not None and not fork.same_operator)
    for change in e.entered:
        empty = change.before is None or (isinstance(change.before, Extent) and change.before.count == 0)
        filled = states.is_tensor(change.after) or isinstance(change.after, (Extent, Made))
        if fewer and empty and filled and change.kind not in (GENERATOR, MODE, ENVIRONMENT, ARGUMENT):
            return change.name.split("[")[0]
    return None


def _input_written(e: Evidence) -> str | None:
    """An input that the forward itself changed."""
    names = [c.name for c in (*e.entered, *e.written) if c.kind == ARGUMENT and states.is_tensor(c.before)]
    refused = _LEAF_WRITTEN in e.error and e.reentrant
    wrote = e.fork is not None or "modified by an inplace operation" in e.error
    if refused:
        return names[0] if names else "an input"
    return names[0] if names and wrote else None


def _leaf_by_switch(e: Evidence) -> str | None:
    return "an embedding" if e.target.switch is not None and not e.reentrant and _LEAF_WRITTEN in e.error else None


def _in_place(e: Evidence) -> str | None:
    if "modified by an inplace operation" in e.error or "inplace" in e.error:
        return e.error.split("\n")[0][:160]
    return None


def _text(*parts: str) -> ComputationRule:
    return lambda e: e.error.split("\n")[0][:160] if any(part in e.error for part in parts) else None


_FAST = ("_native_multi_head_attention", "_transformer_encoder_layer_fwd", "_nested_tensor", "_addmm_activation")
_WITH_FAST_PATH = ("MultiheadAttention", "TransformerEncoderLayer", "TransformerEncoder")


def _modes_differ(e: Evidence) -> bool:
    return e.reentrant and "grad mode" in e.ambient and e.fork is not None


def _fast_path(e: Evidence) -> str | None:
    if e.fork is None and e.reentrant and e.again is None and e.forward is not None:
        return next((str(op) for op in e.forward.ops if any(word in op.name for word in _FAST)), None)
    if not _modes_differ(e) or e.fork is None:
        return None
    op = e.fork.first or e.fork.again
    if op is None:
        return None
    inside = e.kinds.get(op.module, "") in _WITH_FAST_PATH
    return str(op) if inside or any(word in op.name for word in _FAST) else None


def _unfilled(e: Evidence) -> str | None:
    fork = e.fork
    ran = e.forward.ops if fork is None and e.forward is not None else [fork.again if fork is not None else None]
    return next((str(op) for op in ran if op is not None and "rrelu" in op.name), None)


def _kernel_by_mode(e: Evidence) -> str | None:
    """The same operator of the same operands, or another kernel of the same attention."""
    if not _modes_differ(e) or e.fork is None:
        return None
    ops = [op for op in (e.fork.first, e.fork.again) if op is not None]
    attention = next((op for op in ops if "_scaled_dot_product" in op.name), None)
    if e.fork.same_inputs or attention is not None:
        return str(attention or e.fork.again)
    return None


def _grad_mode(e: Evidence) -> str | None:
    """Another operator runs. The same one with other operands has them from elsewhere."""
    if not _modes_differ(e) or e.fork is None or e.fork.of_others:
        return None
    return str(e.fork)


def _switch(e: Evidence) -> str | None:
    outputs = [c.name for c in e.differences if c.kind == "output"]
    return outputs[0] if e.target.switch is not None and e.fork is None and outputs else None


RULES: Sequence[tuple[Cause, ComputationRule]] = (
    (KEPT_WRITTEN, lambda e: e.scenario.policy_text if e.scenario.policy and e.right_otherwise else None),
    (OFFLOADED, lambda e: "an input" if e.scenario.offload and e.right_otherwise and e.fork is not None else None),
    (DETACHED_OUTPUT, _detached_output),
    (NESTED_OUTPUT, _nested_output),
    (SIDE_OUTPUT, _side_output),
    (NESTED_INPUT, _nested_input),
    (NO_INPUT, _no_input),
    (BACKWARD_WITHIN, _backward_within),
    (POLICY, _text("selective activation checkpoint", "not found in storage", "selective checkpoint")),
    (SWITCH_LEAF, _leaf_by_switch),
    (GRAPH_SHARED, _text("backward through the graph a second time", "after they have already been freed")),
    (VIEW, _text("is a view and is being modified", "view was created inside a custom Function")),
    (states.NUMPY_RANDOM, lambda e: _moved(e, "numpy")),
    (states.PYTHON_RANDOM, lambda e: _moved(e, "random")),
    (states.OWN_GENERATOR, _own_generator),
    (NOT_PRESERVED, _not_preserved),
    (states.MODE_CHANGED, _entered(MODE)),
    (states.ENVIRONMENT_CHANGED, _entered(ENVIRONMENT)),
    (SUBCLASS, _subclass),
    (CONTEXT, _context),
    (UNFILLED, _unfilled),
    (CACHE, _cache),
    (FAST_PATH, _fast_path),
    (states.WEIGHT_WRITTEN, _entered(PARAMETER)),
    (states.ARGUMENT_WRITTEN, _input_written),
    (WRITTEN_LATER, _in_place),
    (KERNEL_BY_MODE, _kernel_by_mode),
    (GRAD_MODE, _text("register a hook on a tensor that doesn't require gradient")),
    (GRAD_MODE, _grad_mode),
    (SWITCH, _switch),
)
"""Tried in this order."""

_LAST_BEFORE_STATES = FAST_PATH
"""What the recomputation found changed is asked for after this cause."""


def cause_of_computation(evidence: Evidence) -> tuple[Cause, str] | None:
    """Why outputs or gradients differ, or an error was raised, and what it is about; None: not decided."""
    for cause, rule in RULES:
        about = rule(evidence)
        if about is not None:
            return cause, about
        if cause is _LAST_BEFORE_STATES:
            # What the recomputation found changed is why it computes something else.
            for change in _suspects(evidence):
                found = states.cause_of_state(change, evidence)
                if found is not None:
                    return found, change.name.removesuffix(WHICH)
    return None


def _suspects(e: Evidence) -> list[Change]:
    """Changed states, those first from which the operator read that made something else."""
    source = e.fork.source if e.fork is not None else ""
    if e.fork is None and not e.error:
        return []
    changed = [c for c in e.entered if not c.name.startswith(_RANDOM)]
    others = [c for c in changed if isinstance(c.before, Identity)]
    if others:
        return others
    read = [c for c in changed if c.name == source]
    if read:
        return read
    if e.fork is not None and e.fork.same_operator and e.fork.source:
        return []
    flags = [c for c in changed if isinstance(c.before, bool)]
    rest = [c for c in changed if not isinstance(c.before, bool) and c.kind != BUFFER]
    return flags + rest + [c for c in changed if c.kind == BUFFER]
