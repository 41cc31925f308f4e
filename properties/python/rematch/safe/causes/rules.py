"""Rules that look for a cause of a computation: each returns what the cause is about, or None if it is not this one."""

import re

from rematch.safe.causes import states
from rematch.safe.causes.cause import ComputationRule
from rematch.safe.compare import Change
from rematch.safe.evidence import Digest, Evidence, Traced
from rematch.safe.state import ARGUMENT, ENVIRONMENT, GENERATOR, HOOKS, MODE, PARAMETER, TAG
from rematch.safe.target_run import GRADIENT, OUTPUT
from rematch.safe.values import Extent, Made

RANDOM = "the random state of "
_LEAF_WRITTEN = "a leaf Variable that requires grad is being used in an in-place"


def _absent(evidence: Evidence) -> list[Change]:
    """Returns the gradients that only the plain run has."""
    return [c for c in evidence.differences if c.kind == "gradient" and c.after is None and c.before is not None]


def _flags(evidence: Evidence) -> list[Change]:
    return [c for c in evidence.differences if c.kind == "flag"]


def detached_output(e: Evidence) -> str | None:
    if "none of output has requires_grad=True" in e.error and not any(e.plain.flags.values()):
        return "The output"
    names = [c.name for c in _flags(e) if c.after and c.name.startswith("output")]
    return names[0] if e.reentrant and names else None


def backward_within(e: Evidence) -> str | None:
    refused = "does not require grad and does not have a grad_fn" in e.error
    return "" if e.reentrant and refused and e.again is None else None


def _cut(e: Evidence) -> list[Traced]:
    """Returns the reentrant forwards if gradients are lost, else none."""
    lost = _absent(e) or [c for c in _flags(e) if c.before] or "does not require grad and does not have" in e.error
    return [r for r in e.executions if r.reentrant and not r.recomputes] if lost else []


def no_input(e: Evidence) -> str | None:
    """Holds if a region without gradients computes with trained tensors, and no region before it lost the gradients."""
    trains = {c.name for c in _absent(e)} or e.plain.values.keys()
    for region in _cut(e):
        if region.takes_grad and region.nested:
            return None
        read = {f"gradient of {source}" for op in region.ops for source in op.sources}
        if not (region.takes_grad or region.nested_grad) and read & trains:
            return ""
    return None


def nested_input(e: Evidence) -> str | None:
    names = [c.name.removeprefix("gradient of ") for c in _absent(e)]
    if no_input(e) is not None or not any(r.nested_grad and not r.takes_grad for r in _cut(e)):
        return None
    return next((n for n in names if n.startswith("input ")), "the input")


def nested_output(e: Evidence) -> str | None:
    return next((r.nested for r in _cut(e) if r.nested and r.takes_grad), None)


def side_output(e: Evidence) -> str | None:
    """Returns a tensor beside a region's outputs that has no gradient, unless the recomputation reads it."""
    if not any(r.takes_grad for r in _cut(e)) or nested_output(e) is not None:
        return None
    goes_on = {states.whole(c.name) for c in e.entered} if e.fork is not None else set()
    names = [c.name for c in _flags(e) if c.before and states.whole(c.name) not in goes_on]
    beside = [n for n in names if not n.startswith("output")]
    return beside[0] if beside else (f"a tensor that {names[0]} is computed from" if names else None)


def moved(e: Evidence, name: str) -> str | None:
    return "" if any(c.name == RANDOM + name for c in e.entered) else None


def own_generator(e: Evidence) -> str | None:
    names = [c.name for c in e.entered if c.kind == GENERATOR and not c.name.startswith(RANDOM)]
    return names[0] if names else None


def not_preserved(e: Evidence) -> str | None:
    if not any(c.name.startswith((RANDOM + "PyTorch", RANDOM + "cuda")) for c in e.entered):
        return None
    fork = e.fork
    op = fork.again if fork is not None else None
    return str(op) if op is not None else ""


def sets_switch(e: Evidence) -> str | None:
    """Returns a switch of PyTorch that the forward itself leaves changed."""
    found = e.forward
    return (
        None
        if found is None
        else next((n for n in e.ambient if n in found.left and found.left[n] != found.ambient[n]), None)
    )


def shared(e: Evidence) -> str | None:
    """Returns the error of a graph that is used twice, unless the forward stored what the recomputation then finds."""
    grown = any(isinstance(c.before, Extent) or (c.before is None and states.is_tensor(c.after)) for c in e.entered)
    return None if grown else text("backward through the graph a second time", "after they have already been freed")(e)


def context(e: Evidence) -> str | None:
    others = ("grad mode", "functions of subclasses", "inference mode", sets_switch(e))
    return next((n for n in e.ambient if n not in others), None)


def subclass(e: Evidence) -> str | None:
    if "functions of subclasses" in e.ambient:
        return str(e.fork) if e.fork else "its functions are switched off"
    return None


def entered(*kinds: str) -> ComputationRule:
    def rule(e: Evidence) -> str | None:
        names = [c.name for c in e.entered if c.kind in kinds and c.before is not None]
        source = e.fork.source if e.fork is not None else ""
        return source if source in names else (names[0] if names else None)

    return rule


def cache(e: Evidence) -> str | None:
    """Returns a state that was empty and is filled, if the recomputation skips the operators that made its content."""
    if e.fork is None or not e.fork.skipped:
        return None
    filled: dict[str, list[Change]] = {}
    for change in e.entered:
        empty = change.before is None or (isinstance(change.before, Extent) and change.before.count == 0)
        empty = empty or (isinstance(change.after, Digest) and change.after.hash in e.fork.skipped)
        holds = states.is_tensor(change.after) or isinstance(change.after, (Extent, Made))
        other = change.kind in (GENERATOR, MODE, ENVIRONMENT, ARGUMENT, PARAMETER) or change.name.startswith(HOOKS)
        # A module that is made in the first forward is no cache.
        other = other or (e.again is not None and f"{change.name}.training" in e.again.entry)
        if empty and holds and not other:
            filled.setdefault(change.name.split("[")[0], []).append(change)
    for name, parts in filled.items():
        tensors = [c.after.hash for c in parts if isinstance(c.after, Digest)]
        if not tensors or e.fork.skipped.intersection(tensors):
            return name
    return None


def input_written(e: Evidence) -> str | None:
    """Returns an input that the forward itself changed."""
    names = [c.name for c in (*e.entered, *e.written) if c.kind == ARGUMENT and states.is_tensor(c.before)]
    refused = _LEAF_WRITTEN in e.error and e.reentrant
    wrote = e.fork is not None or "modified by an inplace operation" in e.error
    if refused:
        return names[0] if names else "an input"
    return names[0] if names and wrote else None


def offloaded(e: Evidence) -> str | None:
    """Holds for offloading, unless an attribute is lost with the tensor that hooks replace."""
    lost = any(c.kind == TAG for c in e.entered)
    return "an input" if e.scenario.offload and e.right_otherwise and e.fork is not None and not lost else None


def leaf_by_switch(e: Evidence) -> str | None:
    return "an embedding" if e.target.switch is not None and not e.reentrant and _LEAF_WRITTEN in e.error else None


def in_place(e: Evidence) -> str | None:
    if "inplace" in e.error and input_written(e) is None:
        return e.error.split("\n")[0][:160]
    return None


def text(*parts: str) -> ComputationRule:
    return lambda e: e.error.split("\n")[0][:160] if any(part in e.error for part in parts) else None


def ragged(e: Evidence) -> str | None:
    """Holds if metadata differ only in the symbol of a ragged size."""
    symbols = re.findall(r"torch\.Size\(\[[^\]]*\b(j\d+)\b", e.error) if "different metadata" in e.error else []
    return "" if len(set(symbols)) > 1 else None


_FAST = ("_native_multi_head_attention", "_transformer_encoder_layer_fwd", "_nested_tensor", "_addmm_activation")


_WITH_FAST_PATH = ("MultiheadAttention", "TransformerEncoderLayer", "TransformerEncoder")


def _modes_differ(e: Evidence) -> bool:
    return e.reentrant and "grad mode" in e.ambient and e.fork is not None


def fast_path(e: Evidence) -> str | None:
    if e.fork is None and e.reentrant and e.again is None and e.forward is not None:
        return next((str(op) for op in e.forward.ops if any(word in op.name for word in _FAST)), None)
    if not _modes_differ(e) or e.fork is None:
        return None
    op = e.fork.first or e.fork.again
    if op is None:
        return None
    inside = e.kinds.get(op.module, "") in _WITH_FAST_PATH
    return str(op) if inside or any(word in op.name for word in _FAST) else None


def unfilled(e: Evidence) -> str | None:
    fork = e.fork
    ran = e.forward.ops if fork is None and e.forward is not None else [fork.again if fork is not None else None]
    return next((str(op) for op in ran if op is not None and "rrelu" in op.name), None)


def hook_of_parameter(e: Evidence) -> str | None:
    """Holds if only gradients of parameters with hooks differ, and nothing else was computed."""
    computed = [c for c in e.differences if c.kind in (GRADIENT, OUTPUT, "flag")]
    names = [c.name.removeprefix("gradient of ") for c in computed]
    hooks = [e.plain.values.get(HOOKS + name) for name in names]
    counted = all(h is not None and isinstance(h.value, Extent) and h.value.count for h in hooks)
    return names[0] if e.reentrant and e.fork is None and names and counted and not e.error else None


def kernel_by_mode(e: Evidence) -> str | None:
    """Returns an operator that computes something else from the same operands, or another attention kernel."""
    if not _modes_differ(e) or e.fork is None:
        return None
    ops = [op for op in (e.fork.first, e.fork.again) if op is not None]
    attention = next((op for op in ops if "_scaled_dot_product" in op.name), None)
    if e.fork.same_inputs or attention is not None:
        return str(attention or e.fork.again)
    return None


def grad_mode(e: Evidence) -> str | None:
    """Holds if another operator runs. If the same one runs with other operands, those came from elsewhere."""
    if input_written(e) is not None or kernel_by_mode(e) is not None:
        return None
    answers = [c.name for c in e.differences if c.kind == OUTPUT and not states.is_tensor(c.before)]
    if e.reentrant and e.fork is None and answers:
        return answers[0]
    if not _modes_differ(e) or e.fork is None or e.fork.of_others:
        return None
    return str(e.fork)


def switch(e: Evidence) -> str | None:
    """Returns an output that differs, or that the forward fails before anything is recomputed; outputs of later steps are
    left out, as their weights differ where gradients do."""
    fails = ["it raises an error" for c in e.differences if c.kind == "error" and e.again is None]
    outputs = [c.name for c in e.differences if c.kind == "output" and not re.search(r", step [1-9]", c.name)] or fails
    return outputs[0] if e.target.switch is not None and e.fork is None and outputs else None


def cut(e: Evidence) -> str | None:
    names = [c.name.removeprefix("gradient of ") for c in _absent(e)]
    return names[0] if e.target.switch is not None and e.fork is None and switch(e) is None and names else None
