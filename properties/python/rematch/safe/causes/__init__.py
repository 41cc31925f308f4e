"""The catalogue of causes, and how the evidence decides among them."""

from rematch.safe import state
from rematch.safe.causes import computations, memory, states
from rematch.safe.causes.cause import Cause, Diagnosis
from rematch.safe.compare import Change
from rematch.safe.evidence import FORWARD, Evidence
from rematch.safe.target_run import AFTERWARDS, GRADIENT, OUTPUT

__all__ = ["CAUSES", "COMPUTED", "OF_COMPUTATIONS", "Cause", "Diagnosis", "diagnose"]

CAUSES: dict[str, Cause] = {
    value.name: value
    for place in (states, computations, memory)
    for value in vars(place).values()
    if isinstance(value, Cause)
}
"""All causes by name."""

OF_COMPUTATIONS = {value for value in vars(computations).values() if isinstance(value, Cause)}
"""Causes of a recomputation that computes something else."""

UNDECIDED = Cause(
    "undecided",
    "The evidence does not decide on a cause",
    "Use checkpoint(..., use_reentrant=False, debug=True) to see the operators of both runs.",
)
COMPUTED = (OUTPUT, GRADIENT, "flag", "error")
_RANDOM = {states.NUMPY_RANDOM, states.PYTHON_RANDOM, states.OWN_GENERATOR, computations.NOT_PRESERVED}


def diagnose(evidence: Evidence) -> list[Diagnosis]:
    """Returns the causes of all differences, each once. Differences that the evidence does not decide get an undecided
    diagnosis, which says what was ruled out."""
    found: dict[Cause, Diagnosis] = {}
    computed = [c for c in evidence.differences if c.kind in COMPUTED]
    kept = [c for c in evidence.differences if c.kind not in COMPUTED]
    if computed and evidence.scenario.steps > 1:
        # Other gradients make other weights, and other states that are computed from them.
        kept = []
    root: Cause | None = None
    if computed:
        decided = computations.cause_of_computation(evidence)
        if decided is None:
            found[UNDECIDED] = Diagnosis(UNDECIDED, "", tuple(computed), ruled_out(evidence))
        else:
            root = decided[0]
            found[root] = Diagnosis(root, decided[1], tuple(computed), since(evidence))
    for change in kept:
        change = states.in_container(change, kept)
        cause = states.cause_of_state(change, evidence)
        if cause is None or _follows(change, cause, root, evidence):
            continue
        name = states.unnumbered(change.name).removeprefix(AFTERWARDS)
        if name not in {d.about for d in found.values()} and states.whole(name) in {d.about for d in found.values()}:
            continue
        old = found.get(cause)
        if old is None:
            found[cause] = Diagnosis(cause, name, (change,), _write(change, evidence))
        else:
            found[cause] = Diagnosis(cause, old.about, (*old.explains, change), old.detail)
    if not found and kept:
        found[UNDECIDED] = Diagnosis(UNDECIDED, "", tuple(kept), ruled_out(evidence))
    return list(found.values())


def _follows(change: Change, cause: Cause, root: Cause | None, evidence: Evidence) -> bool:
    """Whether a state differs because other numbers were computed, not for a cause of its own."""
    if root is None or cause is root:
        return False
    if evidence.by(states.unnumbered(change.name)) != FORWARD:
        return True
    if root in _RANDOM or cause is states.TORCH_RANDOM:
        return cause not in (states.BATCH_NORM, states.BUFFER_COUNTER, states.COUNTER, states.COLLECTOR)
    return cause in (states.STATISTIC, states.CARRIED, states.LAZY, states.OTHER_STATE) or (
        root is computations.CACHE and cause in (states.COLLECTOR, states.CLASS_STATE, states.GLOBAL_STATE)
    )


def since(evidence: Evidence) -> str:
    """Returns the operator from which on the recomputation differs."""
    return "" if evidence.fork is None else str(evidence.fork)


def _write(change: Change, evidence: Evidence) -> str:
    """Returns which operator writes to a state in the recomputation."""
    for op in evidence.again.ops if evidence.again is not None else ():
        if change.name in op.writes:
            return f"{op} writes to {' and '.join(op.writes)} in the recomputation, too"
    return ""


_LOOKED_AT = {
    "random states": (state.GENERATOR,),
    "parameters": (state.PARAMETER,),
    "buffers": (state.BUFFER,),
    "attributes": (state.ATTRIBUTE, state.CLASS),
    "globals and closures": (state.GLOBAL, state.CLOSURE),
    "arguments": (state.ARGUMENT,),
    "modes": (state.MODE,),
    "the environment": (state.ENVIRONMENT,),
}


def ruled_out(evidence: Evidence) -> str:
    """Returns a text: what the recomputation found unchanged since its forward, and what it found changed."""
    if evidence.again is None:
        return "no region of torch.utils.checkpoint was recomputed; other checkpoint functions are not watched"
    changed = {change.kind: change.name for change in evidence.entered}
    same = [name for name, kinds in _LOOKED_AT.items() if not changed.keys() & set(kinds)]
    texts = [since(evidence) or "the same operators compute the same values"]
    texts.append(f"unchanged when the recomputation began: {', '.join(same)}")
    if changed:
        texts.append(f"changed: {', '.join(sorted(changed.values()))}")
    modes = [name for name in evidence.ambient if name != "grad mode"]
    texts.append(f"modes of PyTorch that differ: {', '.join(modes) or 'none'}")
    return "; ".join(texts)
