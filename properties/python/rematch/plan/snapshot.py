"""Writes a step's memory in the form of PyTorch's memory snapshots, for its viewer and torch.cuda._memory_viz."""

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rematch.journal.storages import Allocation, Curve

_ALIGN = 512
"""The viewer takes addresses for names, so each storage gets its own address, a multiple of this."""


def write_snapshot(path: str | Path, curve: Curve) -> None:
    """Writes allocations and frees in order, with operator and submodule in place of a stack. A microsecond of the
    trace stands for an operator."""
    events = sorted(_events(curve), key=lambda event: event[:2])
    snapshot = {"segments": [], "device_traces": [[entry for _, _, entry in events]], "allocator_settings": {}}
    # The viewer reads protocols 2 to 4; Python 3.14 writes the fifth unless told otherwise.
    Path(path).write_bytes(pickle.dumps(snapshot, protocol=4))


def _events(curve: Curve) -> Iterator[tuple[int, int, dict[str, Any]]]:
    address = _ALIGN
    for order, allocation in enumerate(curve.allocations):
        if not allocation.bytes:
            continue
        yield allocation.born, order, _entry("alloc", address, allocation, allocation.born)
        if allocation.died is not None:
            for after, action in enumerate(("free_requested", "free_completed")):
                # An operator's frees come before the allocations of the next one.
                entry = _entry(action, address, allocation, allocation.died)
                yield allocation.died, after - 2, entry
        address += (allocation.bytes + _ALIGN - 1) // _ALIGN * _ALIGN


def _entry(action: str, address: int, allocation: Allocation, at: int) -> dict[str, Any]:
    where = f"{allocation.phase}: {allocation.module or 'the model'}"
    frames = [{"filename": where, "name": allocation.operator or allocation.module, "line": 0}]
    return {"action": action, "addr": address, "size": allocation.bytes, "stream": 0, "time_us": at, "frames": frames}
