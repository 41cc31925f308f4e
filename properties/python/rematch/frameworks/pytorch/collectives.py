"""Collectives of a model in parallel: which there are, when, and of which unit."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp._fully_shard._fsdp_collectives import DefaultAllGather, DefaultReduceScatter
from torch.distributed.tensor import DTensor

from rematch.journal.operators import Operator, Reader
from rematch.subjects.records import Record

ROWS = "rows"
"""The dimension of a mesh along which ranks share a batch."""
_WAITS = {"wait_tensor", "wait_tensors", "_wrap_tensor_autograd"}
"""Operators of _c10d_functional that send nothing."""


class Collectives(Reader):
    """Notes each collective with the sizes of its tensors, in order, and in a record those of forwards and
    backwards."""

    def __init__(self, record: Record, says: Callable[[str], None] = lambda what: None) -> None:
        """`says` is told of each before it begins: one that not all ranks call has no end."""
        self._says = says
        self.seen: list[str] = []
        self.record = record
        self._phase = ""
        self._place: dict[str, int] = {}
        self._segment = ""
        self.layers: dict[int, range] = {}
        """What runs in each unit."""
        self.unit = -1
        """The unit whose collectives are next; -1: none."""
        self._added: list[dict[str, Any]] = []
        """Sums of gradients of parameters, which are of the unit that is reduced next."""

    @contextmanager
    def phase(self, name: str, **place: int) -> Iterator[None]:
        """Surrounds a "forward", a "backward", or a "recomputation" within that."""
        before = self._phase, self._place
        self._phase, self._place = name, place or self._place
        try:
            yield
        finally:
            self._phase, self._place = before

    @contextmanager
    def segment(self, begin: int, end: int) -> Iterator[None]:
        """Surrounds a run of a segment, its forward or a recomputation."""
        before, self._segment = self._segment, f"layers {begin} to {end - 1}"
        with self.phase("recomputation" if self._phase == "backward" else self._phase):
            yield
        # What follows a recomputation is the backward of that segment.
        if self._phase != "backward":
            self._segment = before

    def note(self, kind: str, unit: int, size: int = 0) -> None:
        """Notes what is no collective, but says where others belong."""
        if self._phase:
            self.record.add("collectives", kind=kind, phase=self._phase, unit=unit, bytes=size, **self._place)

    def reduces(self, unit: int) -> None:
        """Is called ahead of a reduction of a unit."""
        for entry in self._added:
            entry["unit"] = unit
        self._added = []

    def _told(self, name: str) -> str:
        """A collective, with the unit that it is of, and the segment that ran last."""
        said = [name]
        if layers := self.layers.get(self.unit):
            said.append(f"of unit {self.unit} (layers {layers.start} to {layers.stop - 1})")
        if self._phase:
            said.append(f"in the {self._phase} of " + ", ".join(f"{name} {at}" for name, at in self._place.items()))
        if self._segment:
            said[-1] += f", in or after {self._segment}"
        return " ".join(said)

    def skips(self, types: Sequence[type]) -> bool:
        # What a DTensor makes of the operator is to be seen.
        return any(issubclass(t, DTensor) for t in types)

    def before(self, ran: Operator) -> None:
        op, args = ran.func, ran.args
        if op.namespace == "c10d" or (op.namespace == "_c10d_functional" and op._opname not in _WAITS):
            tensors = [a for a in torch.utils._pytree.tree_leaves(args) if isinstance(a, Tensor)]
            sizes = " ".join(f"{t.dtype}{list(t.shape)}" for t in tensors)
            self.seen.append(f"{op._opname.strip('_')} {sizes}".replace("torch.", ""))
            self._says(self._told(op._opname.strip("_")))
            # Other integers are how ranks agree on what is reduced; bytes are parameters of several dtypes.
            numbers = [t for t in tensors if t.is_floating_point() or t.dtype == torch.uint8]
            # DDP sends the buffers of modules ahead of a forward, whatever its unit is, before any segment runs. Their
            # values show whether it does.
            sends_buffers = self._phase == "forward" and "broadcast" in op._opname
            if self._phase and numbers and not sends_buffers:
                gathers = "allgather" in op._opname.replace("_", "")
                kind = "gather" if gathers else "reduce" if "reduce" in op._opname else "other"
                # The larger one holds what all ranks have. One that gathers what it returns is told their number.
                ranks = args[1] if gathers and op.namespace != "c10d" else 1
                size = max(t.numel() * t.element_size() for t in numbers) * ranks
                where = {"phase": self._phase, "unit": self.unit, **self._place}
                self.record.add("collectives", kind=kind, bytes=size, **where)
                # Values have two dimensions and more.
                if kind == "reduce" and op.namespace != "c10d" and numbers[0].ndim == 1:
                    self._added.append(self.record.entries("collectives")[-1])
                    self._added[-1]["unit"] = -1


class _Gather(DefaultAllGather):
    """The all-gather of a unit, by the public way to give a unit one."""

    def __init__(self, seen: Collectives, unit: int) -> None:
        self._seen, self._unit = seen, unit

    def __call__(self, *args: Any, **options: Any) -> Any:
        with of_unit(self._seen, self._unit):
            return super().__call__(*args, **options)


class _Reduce(DefaultReduceScatter):
    def __init__(self, seen: Collectives, unit: int) -> None:
        self._seen, self._unit = seen, unit

    def __call__(self, *args: Any, **options: Any) -> Any:
        self._seen.reduces(self._unit)
        with of_unit(self._seen, self._unit):
            return super().__call__(*args, **options)


@contextmanager
def of_unit(seen: Collectives, unit: int) -> Iterator[None]:
    seen.unit, before = unit, seen.unit
    try:
        yield
    finally:
        seen.unit = before


class Unit(nn.Module):
    """A module that runs what it is given, and looks at its own parameters then."""

    def __init__(self) -> None:
        super().__init__()
        self._whole: dict[int, Tensor] = {}
        self._own: list[tuple[nn.Module, str]] = []

    def forward(self, run: Any, *values: Any, **keywords: Any) -> Any:
        for module, name in self._own:
            parameter = getattr(module, name)
            self._whole.setdefault(id(parameter), parameter)
        return run(*values, **keywords)

    def remembers(self, units: Sequence[nn.Module]) -> None:
        """Remembers where its parameters are, before it is sharded: those of units within are not its own."""
        mine = set(self.modules())
        theirs = {module for unit in units if unit is not self and unit in mine for module in unit.modules()}
        for module in self.modules():
            if module not in theirs:
                self._own += [(module, name) for name, _ in module.named_parameters(recurse=False)]

    def told_apart(self, number: int, seen: Collectives) -> None:
        """After it was sharded."""
        self.set_custom_all_gather(_Gather(seen, number))
        self.set_custom_reduce_scatter(_Reduce(seen, number))

    def gathered(self) -> int:
        """Bytes of its parameters that are whole still: neither sharded nor freed."""
        own = (getattr(module, name) for module, name in self._own)
        # Ranks that split layers may have parts of what is whole.
        tensors = {
            id(t): t
            for t in (*own, *self._whole.values())
            if not (isinstance(t, DTensor) and ROWS in (t.device_mesh.mesh_dim_names or ()))
        }
        locals = (t.to_local() if isinstance(t, DTensor) else t for t in tensors.values())
        return sum(t.untyped_storage().nbytes() for t in locals)
