"""The types of causes, diagnoses and rules."""

from collections.abc import Callable
from dataclasses import dataclass

from rematch.safe.compare import Change
from rematch.safe.evidence import Evidence


@dataclass(frozen=True)
class Cause:
    """Why checkpointing changes what a module computes. `says` and `advice` are sentences; {name} in them is the state
    or operator that they are about."""

    name: str
    says: str
    advice: str


@dataclass(frozen=True)
class Diagnosis:
    """A cause, what it is about, and the differences that it explains."""

    cause: Cause
    about: str
    explains: tuple[Change, ...] = ()
    detail: str = ""

    @property
    def says(self) -> str:
        return self.cause.says.format(name=self.about)

    @property
    def advice(self) -> str:
        return self.cause.advice.format(name=self.about)


StateRule = Callable[[Change, Evidence], bool]
"""Says whether a cause explains why a state differs."""
ComputationRule = Callable[[Evidence], "str | None"]
"""Returns what a cause is about if it explains why the recomputation computes something else, else None."""
