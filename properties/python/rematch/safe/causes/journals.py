"""Finds causes from a recomputation and its forward, without a plain run."""

from rematch.journal.comparison import Comparison
from rematch.safe.causes import states
from rematch.safe.causes.cause import Diagnosis


def cause_of(found: Comparison) -> Diagnosis | None:
    """Returns what the forward did to its recomputation. None if that is not decided: a journal does not show who wrote
    a state that the forward left alone, from which generator an operator draws, or why it computes something else."""
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
