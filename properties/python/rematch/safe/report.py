"""Differences between two runs, where they began, and what to do about them in PyTorch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rematch.safe.run import Op, Scenario, Seen

ROUNDING = 8
"""Outputs and gradients may differ by so many units of rounding of their largest element: under the
reentrant variant the forward does not record, for which PyTorch has other kernels, and gradients
have another memory layout and are summed in another order."""


@dataclass(frozen=True)
class Finding:
    """A difference between a plain and a checkpointed run: what differs, since which operator, and
    what to do about it."""

    scenario: Scenario
    reentrant: bool
    what: str
    since: str
    advice: str


def compare(plain: Seen, checkpointed: Seen, scenario: Scenario, reentrant: bool) -> Finding | None:
    """The first difference, causes before consequences; None: there is none."""
    difference = _difference(plain, checkpointed)
    if difference is None:
        return None
    since, again = _first_op(checkpointed, difference)
    advice = _advice(plain, checkpointed, difference, again, reentrant)
    return Finding(scenario, reentrant, difference, since, advice)


def _difference(plain: Seen, checkpointed: Seen) -> str | None:
    if checkpointed.error:
        # Text behind an empty line is advice for others.
        return " ".join(checkpointed.error.split("\n\n")[0].split())
    for name, expected in plain.values.items():
        text = _values_differ(name, expected, checkpointed.values.get(name))
        if text:
            return text
    for name, expected in plain.states.items():
        if not _equal_states(expected, checkpointed.states[name]):
            return f"the random state of {name} after the run"
    return None


def _values_differ(name: str, expected: Tensor | None, got: Tensor | None) -> str:
    if expected is None or got is None:
        if expected is got:
            return ""
        return f"{name}: {_presence(got)}, in the plain run {_presence(expected)}"
    if (expected.shape, expected.dtype) != (got.shape, got.dtype):
        return f"{name}: {got.dtype} {tuple(got.shape)}, in the plain run {expected.dtype} {tuple(expected.shape)}"
    if torch.equal(expected, got):
        return ""
    a, b = expected.detach().double().flatten(), got.detach().double().flatten()
    apart = ~((a == b) | (a.isnan() & b.isnan()))
    if not name.startswith("buffer") and expected.is_floating_point():
        unit = torch.finfo(expected.dtype).eps * a[a.isfinite()].abs().max().item() if len(a) else 0
        apart &= ~((a - b).abs() <= ROUNDING * unit)
    if not apart.any():
        return ""
    first = int(apart.nonzero()[0])
    return (
        f"{name}: element {first} is {b[first]:.7g}, in the plain run {a[first]:.7g} "
        f"({int(apart.sum())} of {len(a)} elements)"
    )


def _presence(t: Tensor | None) -> str:
    return "absent" if t is None else "present"


def _equal_states(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor):
        return torch.equal(a, b)
    return repr(a) == repr(b)


def _first_op(checkpointed: Seen, difference: str) -> tuple[str, Op | None]:
    """Where a recomputation first leaves the way of its forward, or writes to the buffer that
    differs."""
    forward: list[Op] = []
    for index, execution in enumerate(checkpointed.executions):
        if index in checkpointed.forwards:
            forward = _real(execution)
            continue
        for again in execution:
            if any(difference.startswith(f"buffer {name}:") for name in again.writes):
                buffers = " and ".join(again.writes)
                return f"{again} writes to {buffers} in the recomputation, too", again
        for first, again in zip(forward, _real(execution), strict=False):
            if first.name != again.name:
                return f"the recomputation runs {again}, the forward ran {first}", again
            if first.hashes != again.hashes and not again.writes:
                return f"{again} computes something else in the recomputation", again
    return "", None


def _real(ops: list[Op]) -> list[Op]:
    return [op for op in ops if not op.name.startswith("aten.detach")]


_HINTS = (
    (
        "number of tensors was saved",
        "The forward takes another way when it is recomputed: a branch on an attribute, a global, "
        "or a generator. Decide outside of the checkpoint, and pass the decision in.",
    ),
    (
        "different metadata",
        "The forward makes other shapes or dtypes when it is recomputed. Pass what it depends on "
        "as an argument; find the operator with checkpoint(..., debug=True).",
    ),
    (
        "inplace",
        "The module writes to a tensor in place that checkpointing keeps: clone() the input first, "
        "or use the operator that is not in place.",
    ),
    ("not found in storage", "A selective policy meets an operator in the recomputation that the forward did not run."),
)

_BUFFER = (
    "PyTorch runs the forward again and knows nothing of buffers. Guard the update with a flag, "
    "which context_fn can set for the recomputation (use_reentrant=False): "
    "checkpoint(f, x, use_reentrant=False, context_fn=lambda: (nullcontext(), recomputing())); "
    "or update the buffer outside of the checkpoint."
)
_NORM = (
    "BatchNorm updates its running statistics once more when it is recomputed. Leave it out of the "
    "checkpoint, use GroupNorm or LayerNorm, or set momentum to 1 - sqrt(1 - momentum)."
)
_GENERATOR = (
    "checkpoint() preserves PyTorch's default generators only, not {name}'s. Draw with "
    "torch.rand() and the like, or outside of the checkpoint, and pass the numbers in."
)
_FROZEN = (
    "No input requires grad, so that the reentrant variant gives the weights no gradient. Use "
    "use_reentrant=False, or call requires_grad_() on the input "
    "(model.enable_input_require_grads() in Transformers)."
)
_STATE = (
    "The forward depends on something that it changes: an attribute, a global, a cache, or a "
    "generator of its own. Pass it in as an argument, or use "
    "checkpoint(..., use_reentrant=False, debug=True) to see the operators of both runs."
)


def _advice(plain: Seen, checkpointed: Seen, difference: str, again: Op | None, reentrant: bool) -> str:
    if checkpointed.error:
        hint = next((hint for text, hint in _HINTS if text in checkpointed.error), "")
        return hint or "PyTorch refuses; its message says why."
    for name in ("numpy", "random"):
        if not _equal_states(plain.states[name], checkpointed.states[name]):
            return _GENERATOR.format(name={"numpy": "NumPy", "random": "Python"}[name])
    if reentrant and "absent, in the plain run present" in difference:
        return _FROZEN
    if again is not None and again.writes:
        return _NORM if "batch_norm" in again.name else _BUFFER
    if difference.startswith("buffer"):
        return _BUFFER
    return _STATE


def report(name: str, found: list[Finding]) -> str:
    """A text for people: every difference once, with the variants and scenarios that show it."""
    groups: dict[tuple[str, str], list[Finding]] = {}
    for finding in found:
        groups.setdefault((finding.since, finding.advice), []).append(finding)
    parts = [f"{name} is not safe to checkpoint"]
    for group in groups.values():
        first = group[0]
        variants = dict.fromkeys(str(finding.reentrant) for finding in group)
        scenarios = list(dict.fromkeys(finding.scenario.name for finding in group))
        lines = [f"use_reentrant={' and '.join(variants)}, {scenarios[0]}"]
        lines.append(f"  differs     {first.what}")
        if first.since:
            lines.append(f"  since       {first.since}")
        lines.append(f"  what to do  {first.advice}")
        if scenarios[1:]:
            lines.append(f"  also with   {'; '.join(scenarios[1:])}")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)
