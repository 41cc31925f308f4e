"""Counts for tests how often a submodule ran, what was kept for the backward, and what drew random numbers."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from rematch.journal.journal import BACKWARD, FORWARD, Journal, warning_of
from rematch.journal.operators import Operator
from rematch.journal.storages import Allocation, StorageMeter, storages


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
    """Bytes of the storages that autograd, hooks on saved tensors or selective policies keep for backwards, each
    counted once. Parameters, buffers and what recomputations keep are not counted; neither are tensors that hooks keep
    and that have no dimensions or were there before."""
    _ran: Counter[str] = field(default_factory=Counter)
    _ran_again: Counter[str] = field(default_factory=Counter)

    def executions(self, name: str = "") -> int:
        """Returns how often a submodule ran, recomputations included; "" is the model. Raises KeyError if unknown."""
        return self._ran[self._known(name)]

    def recomputations(self, name: str = "") -> int:
        """Returns how often a submodule began to run within a recomputation. Raises KeyError for another name."""
        return self._ran_again[self._known(name)]

    def _known(self, name: str) -> str:
        if name in self.names:
            return name
        near = get_close_matches(name, self.names, 3, 0.4)
        raise KeyError(f"the model has no submodule {name!r}" + (f"; did you mean {', '.join(near)}?" if near else ""))


class _Counter(StorageMeter):
    """Counts what a journal tells, and, by a hook, what autograd saves. That hook sees no tensors that a user's hooks,
    policies or regions keep: those were made in a forward, and die in its backward."""

    journal: Journal

    def __init__(self, seen: Observation, model: nn.Module) -> None:
        super().__init__()
        self.seen = seen
        self._own = {s._cdata for t in (*model.parameters(), *model.buffers()) for s in storages(t)}
        self._packed: dict[int, Any] = {}
        self._needed: dict[int, Allocation] = {}
        self._numbers: set[int] = set()
        """Allocations of results without dimensions: the loss lives until the backward ends as well."""

    @contextmanager
    def hooks(self) -> Iterator[None]:
        """Within, autograd tells what it keeps; afterwards all bytes are counted."""
        with saved_tensors_hooks(self._pack, lambda t: t):
            yield
        beside = sum(one.bytes for one in self._needed.values() if one.died is not None)
        self.seen.saved_bytes = beside + sum(storage.nbytes() for storage in self._packed.values())

    def _pack(self, t: Tensor) -> Tensor:
        if not self.journal.recomputes:
            # A kept storage does not die, and does not give its address to another one.
            self._packed |= {s._cdata: s for s in storages(t.detach()) if s._cdata not in self._own}
        return t

    def enters(self, module: str) -> None:
        self.seen._ran[module] += 1
        self.seen._ran_again[module] += self.journal.recomputes

    def before(self, op: Operator) -> None:
        super().before(op)
        if self.phase == FORWARD and self.journal.phase == BACKWARD:
            live = (one for one in self.curve.allocations if one.died is None and one.phase == FORWARD)
            self._needed |= {id(one): one for one in live if id(one) not in self._numbers}
        self.phase = self.journal.phase

    def after(self, op: Operator) -> None:
        super().after(op)
        made = (self.allocation(storage) for t in op.made() if t.dim() == 0 for storage in storages(t))
        self._numbers |= {id(one) for one in made if one is not None and one.born == len(self.curve.live) - 1}
        if op.draws:
            self.seen.draws.append(Draw(op.name, self.journal.module, self.journal.recomputes))


@contextmanager
def observe(model: nn.Module) -> Iterator[Observation]:
    """Watches forwards and backwards of `model`; leaves no hook on it.

        with rematch.observe(model) as seen:
            model(x).sum().backward()
        assert seen.executions("layers.3.attn") == 2

    It tells recomputations of torch.utils.checkpoint from forwards, under whatever name that was imported.
    """
    modules = dict(model.named_modules())
    reader = _Counter(Observation(tuple(modules)), model)
    reader.journal = Journal(modules, reader, unseen=warning_of("rematch.observe"))
    with reader.journal.open(), reader.hooks():
        yield reader.seen
