"""Counts for one's own tests: how often a submodule ran, what was kept for the backward, what drew random numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches

from torch import nn

from rematch.journal.journal import Journal, warning_of
from rematch.journal.operators import Operator, Reader
from rematch.safe.run import counting_saved


@dataclass(frozen=True)
class Draw:
    """An operator that drew random numbers."""

    operator: str
    module: str
    """The submodule in which it ran; empty for the model itself."""
    recomputed: bool


@dataclass
class Observation:
    """What happened within observe()."""

    names: tuple[str, ...]
    draws: list[Draw] = field(default_factory=list)
    saved_bytes: int = 0
    """Bytes of the storages that autograd kept for backwards, each once, those of parameters and buffers left out."""
    _ran: Counter[str] = field(default_factory=Counter)
    _ran_again: Counter[str] = field(default_factory=Counter)

    def executions(self, name: str = "") -> int:
        """How often a submodule ran, recomputations included; "" is the model. Raises KeyError for another name."""
        return self._ran[self._known(name)]

    def recomputations(self, name: str = "") -> int:
        """How often a submodule began to run within a recomputation. Raises KeyError for another name."""
        return self._ran_again[self._known(name)]

    def _known(self, name: str) -> str:
        if name in self.names:
            return name
        near = get_close_matches(name, self.names, 3, 0.4)
        raise KeyError(f"the model has no submodule {name!r}" + (f"; did you mean {', '.join(near)}?" if near else ""))


class _Counter(Reader):
    """Counts what a journal tells."""

    def __init__(self, seen: Observation) -> None:
        self.seen = seen
        self.journal: Journal | None = None

    def enters(self, module: str) -> None:
        self.seen._ran[module] += 1
        self.seen._ran_again[module] += self.journal.recomputes

    def after(self, op: Operator) -> None:
        if op.draws:
            self.seen.draws.append(Draw(op.name, self.journal.module, self.journal.recomputes))


@contextmanager
def observe(model: nn.Module) -> Iterator[Observation]:
    """Watches forwards and backwards of `model`; afterwards no hook of it is left.

        with rematch.observe(model) as seen:
            model(x).sum().backward()
        assert seen.executions("layers.3.attn") == 2

    Recomputations of torch.utils.checkpoint are told from forwards, by whatever name it was imported.
    """
    modules = dict(model.named_modules())
    reader = _Counter(Observation(tuple(modules)))
    reader.journal = Journal(modules, reader, unseen=warning_of("rematch.observe"))
    saved: dict[int, int] = {}
    try:
        with reader.journal.open(), counting_saved(saved, [model]):
            yield reader.seen
    finally:
        reader.seen.saved_bytes = sum(saved.values())
