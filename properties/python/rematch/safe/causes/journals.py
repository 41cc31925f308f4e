"""Causes that a recomputation shows beside its forward, without a plain run."""

from __future__ import annotations

from rematch.journal.comparison import Comparison
from rematch.safe.causes import states
from rematch.safe.causes.cause import Diagnosis


def cause_of(found: Comparison) -> Diagnosis | None:
    """What the forward did to its recomputation. None where that is not decided: who wrote a state that the forward
    left alone, from which generator an operator draws, or why one computes something else, does not show here."""
    written = [state for state in found.states if state.name in found.advanced]
    if not written:
        return None
    if any("batch_norm" in state.operator for state in written):
        cause = states.BATCH_NORM
    elif any(state.name.endswith(("_u", "_v")) for state in written):
        cause = states.SPECTRAL_NORM
    else:
        cause = states.BUFFER_COUNTER if isinstance(written[0].now, int) else states.BUFFER_AVERAGE
    return Diagnosis(cause, written[0].name)
