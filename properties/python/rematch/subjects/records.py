"""Records of runs, as the harness reads them."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

import numpy as np

from rematch.subjects.arrays import bits_of, name_of

FORMAT = 1
"""The version of the record that this module writes."""

Bits = dict[tuple[str, int, int, int], tuple[bytes, tuple[int, ...]]]
"""The bits of observations and their shapes, by quantity, step, microbatch and index."""


def hash64(data: bytes | bytearray | memoryview) -> str:
    """64 bits that equal contents share, in every process, as the protocol writes them."""
    return "0x" + hashlib.blake2b(data, digest_size=8).hexdigest()


class Record:
    """Everything that one run shows. Methods append; nothing is read back.

    Steps, microbatches, layers, outputs, parameters and executions count from 0. Execution 0 of a
    layer is the forward itself, 1 and above are recomputations on behalf of that forward. `where`
    is a `step` and a `microbatch`, 0 where they are not given, as is whatever else it may be.
    """

    def __init__(self, previous: Bits | None = None) -> None:
        """`previous`: the bits that the last run of the same case had; they are not sent again."""
        self._previous = previous or {}
        self.bits: Bits = {}
        self._lists: dict[str, list[dict[str, Any]]] = {}
        self._last_state: tuple[bytes, str] = (b"", "")
        self._rest: dict[str, Any] = {"format": FORMAT}

    def observe(
        self,
        quantity: str,
        array: np.ndarray | None,
        *,
        step: int = 0,
        microbatch: int = 0,
        index: int = 0,
        requires_grad: bool = False,
        dtype: str | None = None,
    ) -> None:
        """Notes an array: "output", "loss", "input_gradient", "parameter_gradient", "parameter",
        "buffer" or "reevaluation". None is an absent gradient, which is not a gradient of zeros.
        `dtype` is needed for "bfloat16" only, whose bits come as 16-bit integers.

        Raises TypeError for an array of any other dtype than float32, float64, int32 and uint8.
        """
        entry: dict[str, Any] = {"quantity": quantity}
        _add(entry, step=step, microbatch=microbatch, index=index)
        if array is None:
            entry["present"] = False
        else:
            _add(entry, requires_grad=requires_grad)
            entry |= {"dtype": dtype or name_of(array.dtype), "shape": array.shape}
            key, bits = (quantity, step, microbatch, index), bits_of(array)
            if self._previous.get(key) == (bits, array.shape):
                entry["as"] = True
            else:
                entry["data"] = base64.b64encode(bits).decode("ascii")
            self.bits[key] = (bits, array.shape)
        self._append("observations", entry)

    def draw(self, layer: int, elements: int, hashed: str, **where: int) -> None:
        """Notes that a layer drew `elements` numbers, its mask or its noise; `hashed` is their hash64(). `where`: also
        the `execution` and the `stream`."""
        self._append("draws", {"hash": hashed, "elements": elements}, layer=layer, **where)

    def stream(self, moment: str, state: bytes, **where: int) -> None:
        """Notes the random state of a `stream` at "after_forward", "after_backward" or "after_step". Equal states must
        have equal bytes."""
        if state != self._last_state[0]:
            # Most states are that of the moment before.
            self._last_state = (state, hash64(state))
        self._append("streams", {"moment": moment, "seed": self._last_state[1]}, **where)

    def executions(self, counts: list[int], **where: int) -> None:
        """Notes how often each layer ran for one forward, recomputations included."""
        for layer, count in enumerate(counts):
            self._append("executions", {}, layer=layer, count=count, **where)

    def ran(self, layer: int, execution: int, **where: int) -> None:
        """Notes that a layer has run for a forward, or a recomputation has stopped in it: in this order."""
        self._append("live", {"event": "layer", "layer": layer}, execution=execution, **where)

    def hooks(self, counts: list[int], **where: int) -> None:
        """Notes how often each parameter's gradient hook fired in the backwards of one forward."""
        for parameter, count in enumerate(counts):
            if count:
                self._append("hooks", {"count": count}, parameter=parameter, **where)

    def grad_flag(self, layer: int, output: int, requires_grad: bool, **where: int) -> None:
        """Notes whether a layer's output required grad when its forward had run."""
        self._append("grad_flags", {}, layer=layer, output=output, requires_grad=requires_grad, **where)

    def bytes(self, moment: str, *, saved: int, offloaded: int = 0, temporaries: int = 0, **where: int) -> None:
        """Notes the bytes kept for the backward, those in host memory, and others that are live. `where`: also
        `retained`, after a backward that was not the last one of its forward."""
        self._append("bytes", {"moment": moment}, saved=saved, offloaded=offloaded, temporaries=temporaries, **where)

    def held(self, event: str, live: int, **where: int) -> None:
        """Notes the bytes that forwards and recomputations made and that are held still, at "forward", "backward",
        "step", when the backward of a `layer` begins ("node"), or when a "layer" ends: then with its `execution`, and
        what was held when it was `entered`.
        """
        # The default of a layer is -1, none, so that 0 is written.
        entry = {"event": event} | {name: value for name, value in where.items() if name == "layer"}
        self._append("held", entry, live=live, **where)

    def value(self, layer: int, index: int, hashed: str, **rest: Any) -> None:
        """Notes a tensor that an execution of a layer made, or saved; value_entry() says how."""
        self.append_value(value_entry(layer, index, hashed, **rest))

    def append_value(self, entry: dict[str, Any]) -> None:
        """Notes what value_entry() made."""
        self._append("values", entry)

    def trial(self, failed: bool, message: str = "", left_behind: str = "") -> None:
        """Says how the injected failure ended, and forgets whatever was noted before, but for what the
        model consists of. `left_behind` names settings that are not as before the trial."""
        self._lists = {name: its for name, its in self._lists.items() if name in ("units", "shards")}
        self.bits.clear()
        self._rest["trial"] = _add({}, failed=failed, message=message, left_behind=left_behind)

    def promise(self, name: str, broken: str) -> None:
        """Notes a promise that was tried; `broken` says what came instead, "" if it was kept."""
        self._append("promises", {"name": name}, broken=broken)

    def unit(self, unit: int, begin: int, end: int, **says: bool | int) -> None:
        """Notes what a wrapping promises of a unit, in which the layers from `begin` to `end` run; what it `says` is
        in properties/record/record.h."""
        self._append("units", {}, unit=unit, begin=begin, end=end, **says)

    def shard(self, unit: int, parameter: int, size: int, added: int = 0) -> None:
        """Notes a parameter of a unit, and its bytes in a collective, padding included. `added`: those of its gradient
        that other devices add up before."""
        self._append("shards", {}, unit=unit, parameter=parameter, bytes=size, added=added)

    def collective(self, kind: str, phase: str, unit: int, size: int, **where: int) -> None:
        """Notes a "gather", a "reduce" or any "other" collective, that a unit is still gathered when the backward is
        over ("kept"), or that a run of one that sends what it makes is over ("ran", "stopped" if early stop ended it).
        The phase is "forward", "recomputation" or "backward". `unit`: -1 for none."""
        self._append("collectives", {"kind": kind, "phase": phase, "unit": unit}, bytes=size, **where)

    def error(self, kind: str, message: str) -> None:
        """Says that the implementation under test failed. What was noted before stays."""
        self._rest["error"] = {"kind": kind, "message": message}

    def entries(self, name: str) -> list[dict[str, Any]]:
        """A list as the protocol writes it."""
        return self._lists.get(name, [])

    def take_over(self, other: Record) -> None:
        """Notes all that the other record shows, but for its arrays."""
        self._rest |= other._rest
        self._lists |= {k: v for k, v in other._lists.items() if k != "observations"}

    def to_json(self) -> dict[str, Any]:
        """The record as the protocol writes it, defaults left out."""
        return {**self._rest, **self._lists}

    def _append(self, name: str, entry: dict[str, Any], **fields: Any) -> None:
        self._lists.setdefault(name, []).append(_add(entry, **fields))


def value_entry(
    layer: int,
    index: int,
    hashed: str,
    *,
    op: str = "",
    saved: bool = False,
    memory: int = 0,
    size: int = 0,
    execution: int = 0,
    step: int = 0,
    microbatch: int = 0,
) -> dict[str, Any]:
    """A tensor that an execution of a layer made by `op`, or saved. Results come first in `index`
    with the layer's outputs; saved tensors count by themselves. `memory` names the memory that it
    lies in, 0 that of the model and of its input; `size` is in bytes."""
    # There is one for every tensor of a run; _add() would take three times as long.
    entry: dict[str, Any] = {"hash": hashed}
    if step:
        entry["step"] = step
    if microbatch:
        entry["microbatch"] = microbatch
    if layer:
        entry["layer"] = layer
    if execution:
        entry["execution"] = execution
    if index:
        entry["index"] = index
    if op:
        entry["op"] = op
    if saved:
        entry["saved"] = True
    if memory:
        entry["memory"] = memory
    if size:
        entry["bytes"] = size
    return entry


def _add(entry: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """The entry with those of `fields` that are not their default: 0, False or ""."""
    for name, value in fields.items():
        if value:
            entry[name] = value
    return entry
