"""Counts the bytes of a training step: which memory is live when, which operator made it, and until when it is held."""

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from rematch.journal.journal import BACKWARD, FORWARD, RECOMPUTATION
from rematch.journal.operators import Operator, Reader

GIVEN, OPTIMIZER = "given", "optimizer"
"""Further phases beside those of a journal: before the run, and the step of the optimizer."""

PARTS = {
    torch.sparse_coo: ("_indices", "_values"),
    torch.sparse_csr: ("crow_indices", "col_indices", "values"),
    torch.sparse_bsr: ("crow_indices", "col_indices", "values"),
    torch.sparse_csc: ("ccol_indices", "row_indices", "values"),
    torch.sparse_bsc: ("ccol_indices", "row_indices", "values"),
}
"""The methods that return the parts of sparse tensors."""


@dataclass(slots=True)
class Allocation:
    """The memory of one storage. Times are the numbers of operators that ran before."""

    bytes: int
    born: int
    phase: str
    module: str
    """The submodule in which it was made; for memory that was there before, a description such as "parameters"."""
    operator: str = ""
    died: int | None = None
    gradient: bool = False
    """Whether it is the gradient of a parameter after the backward."""

    def live(self, at: int) -> bool:
        """Whether the memory is live right after operator `at` ran."""
        return self.born <= at and (self.died is None or self.died > at)


@dataclass
class Mark:
    """A place in a step: the bytes that are live there, and the most until the next mark."""

    name: str
    at: int
    live: int
    most: int = 0


@dataclass
class Curve:
    """The bytes of a step."""

    allocations: list[Allocation] = field(default_factory=list)
    live: list[int] = field(default_factory=list)
    """Bytes that are live right after each operator."""
    marks: list[Mark] = field(default_factory=list)
    operations: dict[str, int] = field(default_factory=dict)
    """Floating-point operations of recomputations, by the mark before them: those of products as PyTorch counts them,
    one for each element of other results."""
    computed: int = 0
    """The operations of everything else, counted alike."""

    @property
    def peak(self) -> int:
        """The most bytes that are live at a time."""
        return max((mark.most for mark in self.marks), default=0)

    @property
    def peak_at(self) -> int:
        """The number of the operator after which the most bytes are live."""
        return max(range(len(self.live)), key=lambda i: self.live[i], default=0)

    @property
    def peak_mark(self) -> Mark:
        """The mark after which the peak comes."""
        return max(self.marks, key=lambda mark: mark.most)


class StorageMeter(Reader):
    """Counts the storages of all tensors that operators return; memory that an operator allocates and frees while it
    runs is not seen. Works on fake tensors, too."""

    def __init__(self) -> None:
        self.curve = Curve()
        self.phase, self.module = FORWARD, ""
        self.live = 0
        """Bytes that are live now."""
        # A weak reference to a storage keeps its address from being taken for that of another.
        self._known: dict[int, tuple[Any, Allocation]] = {}
        self.mark("begin")

    def belongs(self, what: str, tensors: Iterable[Tensor]) -> None:
        """Counts memory that was there before the step; `what` describes it."""
        for t in tensors:
            for storage in storages(t):
                self._see(storage, Allocation(0, 0, GIVEN, what))
        self.curve.marks[0].live = self.curve.marks[0].most = self.live

    def mark(self, name: str) -> None:
        """Begins an interval of the step."""
        self.curve.marks.append(Mark(name, len(self.curve.live), self.live, self.live))

    def gradients(self, tensors: Iterable[Tensor]) -> None:
        """Says which memory holds gradients of parameters."""
        for t in tensors:
            for storage in storages(t):
                if (one := self.allocation(storage)) is not None:
                    one.gradient = True

    def allocation(self, storage: Any) -> Allocation | None:
        """Returns the allocation of a storage; None if the storage was never seen."""
        known = self._known.get(storage._cdata)
        return None if known is None else known[1]

    def before(self, op: Operator) -> None:
        last = self.curve.marks[-1]
        if last.at == len(self.curve.live):
            # What Python let go of after the mark belongs to what was before it.
            last.live = last.most = self.live

    def after(self, op: Operator) -> None:
        now, last = len(self.curve.live), self.curve.marks[-1]
        made: Allocation | None = None
        results = [leaf for leaf in tree_leaves(op.result) if isinstance(leaf, Tensor)]
        for storage in chain.from_iterable(map(storages, results)):
            made = made or Allocation(0, now, self.phase, self.module, op.name)
            if self._see(storage, made):
                made = None
        self.curve.live.append(self.live)
        last.most = max(last.most, self.live)
        operations = sum(t.numel() for t in results)
        if op.func.overloadpacket in flop_registry:
            operations = int(flop_registry[op.func.overloadpacket](*op.args, **op.kwargs, out_val=op.result))
        if self.phase == RECOMPUTATION:
            self.curve.operations[last.name] = self.curve.operations.get(last.name, 0) + operations
        else:
            self.curve.computed += operations

    def _see(self, storage: Any, allocation: Allocation) -> bool:
        name, size = storage._cdata, storage.nbytes()
        known = self._known.get(name)
        if known is not None:
            # It may have been resized.
            self.live += size - known[1].bytes
            known[1].bytes = size
            return False
        allocation.bytes = size
        self.curve.allocations.append(allocation)
        self._known[name] = weakref.ref(storage, partial(self._gone, name)), allocation
        self.live += size
        return True

    def _gone(self, name: int, _: Any) -> None:
        _, allocation = self._known.pop(name)
        allocation.died = len(self.curve.live)
        self.live -= allocation.bytes


class AllocatorMeter:
    """Asks the allocator of a CUDA device: it counts all memory, also that inside operators, but not what made it."""

    def __init__(self, device: torch.device) -> None:
        self.curve, self.phase, self._device = Curve(), FORWARD, device
        torch.cuda.reset_peak_memory_stats(device)
        self.mark("begin")

    def belongs(self, what: str, tensors: Iterable[Tensor]) -> None:
        """The allocator knows no names."""

    def gradients(self, tensors: Iterable[Tensor]) -> None:
        """The allocator knows no names."""

    def mark(self, name: str) -> None:
        """Begins an interval of the step."""
        self._close()
        self.curve.marks.append(Mark(name, len(self.curve.marks), torch.cuda.memory_allocated(self._device)))
        torch.cuda.reset_peak_memory_stats(self._device)

    def _close(self) -> None:
        if self.curve.marks:
            self.curve.marks[-1].most = torch.cuda.max_memory_allocated(self._device)
            self.curve.live.append(self.curve.marks[-1].most)

    def __enter__(self) -> "AllocatorMeter":
        return self

    def __exit__(self, *_: Any) -> None:
        torch.cuda.synchronize(self._device)
        self._close()


def storages(t: Tensor) -> Iterator[torch.UntypedStorage]:
    """Yields the storages that hold a tensor's elements: those of its parts if it is sparse or a subclass that wraps
    others, none if it has no storage, as on the meta device."""
    if hasattr(t, "__tensor_flatten__"):
        for name in t.__tensor_flatten__()[0]:
            yield from storages(getattr(t, name))
    elif t.layout in PARTS:
        for name in PARTS[t.layout]:
            yield from storages(getattr(t, name)())
    elif t.device.type != "meta" and torch._C._has_storage(t):
        yield t.untyped_storage()


def composition(curve: Curve, at: int, block_of: Callable[[str], str]) -> Mapping[str, int]:
    """Returns what the bytes are that are live after operator `at`, largest first. `block_of` returns the block to
    which a submodule belongs; empty if none."""
    found: dict[str, int] = {}
    for allocation in curve.allocations:
        if allocation.bytes and allocation.live(at):
            what = _what(allocation, block_of)
            found[what] = found.get(what, 0) + allocation.bytes
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def _what(allocation: Allocation, block_of: Callable[[str], str]) -> str:
    if allocation.phase == GIVEN:
        return allocation.module
    if allocation.gradient:
        return "gradients of parameters"
    if allocation.phase == BACKWARD:
        return "gradients of activations"
    if allocation.phase == OPTIMIZER:
        return "the optimizer's own tensors"
    if allocation.phase == RECOMPUTATION:
        return "activations, recomputed"
    if block_of(allocation.module):
        return "activations of blocks"
    return f"activations of {allocation.module}" if allocation.module else "activations outside of modules (the loss)"
