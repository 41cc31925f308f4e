"""Counts for one's own tests: how often a submodule ran, what was kept for the backward, what drew random numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from rematch.safe.regions import Region, Regions, told
from rematch.safe.run import counting_saved
from rematch.safe.state import hooked


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


class _Counts(Regions):
    """Says whether a recomputation is under way."""

    depth = 0

    def begin(self, region: Region, recomputes: bool) -> Any:
        self.depth += recomputes
        return recomputes

    def end(self, token: Any) -> None:
        self.depth -= token


class _Draws(TorchDispatchMode):
    def __init__(self, seen: Observation, counts: _Counts, modules: list[str]) -> None:
        super().__init__()
        self._seen, self._counts, self._modules = seen, counts, modules

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.Tag.nondeterministic_seeded in func.tags:
            module = self._modules[-1] if self._modules else ""
            self._seen.draws.append(Draw(str(func), module, self._counts.depth > 0))
        return func(*args, **(kwargs or {}))


@contextmanager
def observe(model: nn.Module) -> Iterator[Observation]:
    """Watches forwards and backwards of `model`; afterwards no hook of it is left.

        with rematch.observe(model) as seen:
            model(x).sum().backward()
        assert seen.executions("layers.3.attn") == 2

    Recomputations of torch.utils.checkpoint are told from forwards, by whatever name it was imported.
    """
    names = {module: name for name, module in model.named_modules()}
    seen, counts = Observation(tuple(names.values())), _Counts()
    saved: dict[int, int] = {}
    modules: list[str] = []

    def enter(module: nn.Module, args: Any) -> None:
        modules.append(names[module])
        seen._ran[names[module]] += 1
        seen._ran_again[names[module]] += counts.depth > 0

    def leave(*_: Any) -> None:
        modules.pop()

    hooks = [h for m in names for h in hooked(m.register_forward_pre_hook, enter)]
    hooks += [h for m in names for h in hooked(m.register_forward_hook, leave, always_call=True)]
    try:
        with told(counts), counting_saved(saved, [model]), _Draws(seen, counts, modules):
            yield seen
    finally:
        for hook in hooks:
            hook.remove()
        seen.saved_bytes = sum(saved.values())
