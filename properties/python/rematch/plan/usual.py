"""What people do without a plan, measured as the plan is: every block, each second one, checkpoint_sequential(),
products kept, a budget for torch.compile()."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from math import isqrt
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn
from torch._dynamo import lookup_backend
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._pytree import tree_leaves

from rematch.journal.storages import storages
from rematch.plan.options import CHECKPOINTED, JOINED, PRODUCTS_KEPT, STORED
from rematch.plan.times import Interval

_EACH = {2: "each second block", 3: "each third block", 4: "each fourth block"}
_BUDGETS = (0.7, 0.4, 0.1)


@dataclass(frozen=True)
class Usual:
    """What one of them takes, and what the plan takes within its bytes."""

    name: str
    peak: int | None
    """The bytes of its peak; None of a compiled step, in which storages cannot be counted."""
    held: int
    """The bytes that it holds for the backward, beside the loss and what was there before the step."""
    slower: Interval
    """How much longer its step takes than the same without recomputation."""
    planned: Interval | None
    """How much longer a step takes with the plan that has no higher peak, or, of a compiled step, holds no more; None
    if there is none."""

    @property
    def is_ahead(self) -> bool:
        """Whether its share of recomputation is surely smaller than that of the plan within its bytes."""
        planned = self.planned
        return planned is not None and self.slower.is_sure and planned.is_sure and self.slower.high < planned.low


def usual_choices(
    names: Sequence[str], options: Sequence[str], in_sequence: bool
) -> Iterator[tuple[str, dict[str, str]]]:
    """Yields what people choose without a plan, by name: a choice for each block. `in_sequence`: they are
    the children of an nn.Sequential."""
    yield "every block", dict.fromkeys(names, CHECKPOINTED)
    for n, text in _EACH.items():
        if len(names) >= 2 * n:
            # torchtitan counts from one.
            yield text, {name: STORED if (i + 1) % n else CHECKPOINTED for i, name in enumerate(names)}
    segments = isqrt(len(names))
    if in_sequence and segments > 1:
        # The last segment, with the rest, is not checkpointed.
        length, kept = len(names) // segments, len(names) - len(names) // segments * (segments - 1)
        texts = [CHECKPOINTED if i % length == 0 else JOINED for i in range(len(names) - kept)] + [STORED] * kept
        yield f"checkpoint_sequential({segments})", dict(zip(names, texts, strict=True))
    if PRODUCTS_KEPT in options:
        yield PRODUCTS_KEPT, dict.fromkeys(names, PRODUCTS_KEPT)


def compiled_steps(model: nn.Module) -> dict[str, Callable[..., Any]]:
    """Returns the model compiled without a budget, and with each budget, by name. Kernels are those of an eager step
    (backend aot_eager): only what is recomputed differs."""
    eager = lookup_backend("aot_eager")

    def call(*args: Any, **kwargs: Any) -> Any:
        return model(*args, **kwargs)

    def backend(budget: float, graph: Any, inputs: Any) -> Any:
        with torch._functorch.config.patch(activation_memory_budget=budget):
            return eager(graph, inputs)

    found = {}
    for name, budget in {"compiled": 1.0, **{f"activation_memory_budget = {b}": b for b in _BUDGETS}}.items():
        # Dynamo counts the compilations of a code object, and runs one that had many as it is, with a warning alone.
        own = FunctionType(call.__code__.replace(co_name=f"call_{budget}"), globals(), closure=call.__closure__)
        found[name] = torch.compile(own, backend=partial(backend, budget))
    return found


class Saved:
    """Calls a model, and counts the bytes that its forward saves for the backward beside parameters and arguments."""

    def __init__(self, call: Callable[..., Any], model: nn.Module) -> None:
        self._call, self._model, self.bytes = call, model, 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        there = chain(self._model.parameters(), self._model.buffers(), tree_leaves((args, kwargs)))
        given = {storage._cdata for t in there if isinstance(t, Tensor) for storage in storages(t)}
        kept: dict[int, Any] = {}

        def pack(t: Tensor) -> Tensor:
            kept.update((storage._cdata, storage) for storage in storages(t))
            return t

        with saved_tensors_hooks(pack, lambda t: t):
            returned = self._call(*args, **kwargs)
        self.bytes = sum(storage.nbytes() for address, storage in kept.items() if address not in given)
        return returned
