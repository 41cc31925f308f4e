"""Notes what a region computed: a fingerprint of every operator's result, and of every state that it read."""

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from rematch.journal import regions
from rematch.journal.fingerprint import Fingerprints, flattened
from rematch.journal.operators import Operator, OperatorsAroundCompiled, Reader

PLAIN = {Tensor, nn.Parameter, nn.Buffer}
"""Classes of tensors that are nothing but memory."""
_SKIPPED = tuple(
    f"aten::{name}" for name in ("empty", "new_empty", "resize", "detach", "lift", "_to_copy", "clone", "_unsafe_view")
)
"""These operators make no values yet, or no other values; a forward finds some of its casts in autocast's cache."""
_ALL = 1 << 30
_RESERVED = {
    **{"_cudnn_rnn": (3, 4), "miopen_rnn": (3, 4), "mkldnn_rnn_layer": (3,), "ctc_loss": (1,)},
    **{"_scaled_dot_product": tuple(range(2, 9)), "cudnn_batch_norm": (3,), "_batch_norm_with_update": (3,)},
    **{"_flash_attention": tuple(range(2, 9)), "_efficient_attention": tuple(range(2, 9))},
}
"""The results of operators, by words in their names, that are reserved space, which holds anything."""


class Entry(NamedTuple):
    """Identifies one result of an operator."""

    module: str
    operator: str
    result: int
    shape: torch.Size
    dtype: torch.dtype
    draws: bool
    exact: bool
    """Whether the device computes the same bits again: only the CPU is trusted to."""


@dataclass(eq=False)
class Noted:
    """The elements that are kept of a tensor, all of them or some at equal distances, and words that have its
    fingerprint, which is taken together with others when the region is over."""

    entry: Entry
    words: Tensor | None
    kept: Tensor
    stride: int
    print: Tensor | None = None


@dataclass(eq=False)
class Computation:
    """What one execution of a region computed. `around` is the module in which checkpoint() was called."""

    around: str
    reentrant: bool
    results: list[Noted] = field(default_factory=list)
    reads: dict[str, Noted] = field(default_factory=dict)
    """The parameters, buffers and arguments that it read, by name, as they were at the first read."""
    read_at: dict[str, int] = field(default_factory=dict)
    """For each of them, how many results there were at that read."""
    names: dict[int, str] = field(default_factory=dict)
    """Names of the tensors that begin at an address; "" for one that was made within the region."""
    buffers: dict[str, Tensor] = field(default_factory=dict)
    wrote: dict[str, Tensor] = field(default_factory=dict)
    """Fingerprints of buffers when the region was over."""
    prints: Tensor | None = None

    def take(self, modules: "Modules", arguments: Any) -> None:
        """Names the tensors among the region's arguments."""
        for number, t in enumerate(t for t in tree_leaves(arguments) if type(t) in PLAIN):
            if t.layout == torch.strided:
                name = f"argument {number} of the checkpoint"
                self.names[t.data_ptr()] = modules.states.get(t.data_ptr(), name)

    def close(self, fingerprints: Fingerprints) -> None:
        """Puts the fingerprints of results, states and written buffers together, in this order."""
        self.wrote = {name: fingerprints.of(flattened(t)) for name, t in self.buffers.items()}
        noted = [*self.results, *self.reads.values()]
        later = [n for n in noted if n.words is not None]
        for n, taken in zip(later, fingerprints.of_all([n.words for n in later]), strict=True):
            n.print, n.words = taken, None
        prints = [n.print for n in noted if n.print is not None] + list(self.wrote.values())
        if prints:
            device = next((p.device for p in prints if p.device.type != "cpu"), prints[0].device)
            self.prints = torch.stack([p.to(device, non_blocking=True) for p in prints])
        self.names, self.buffers = {}, {}


class Modules:
    """Finds the module in which an operator runs from the calls that are under way; no hook is needed."""

    _OTHER, _CALL, _RUN, _INFRASTRUCTURE = range(4)
    _kinds: dict[int, tuple[int, CodeType]] = {}

    def __init__(self, model: nn.Module) -> None:
        self._names = {id(module): (name, module) for name, module in model.named_modules()}
        self.states: dict[int, str] = {}
        self.buffers = {name for name, _ in model.named_buffers()}
        for name, t in (*model.named_parameters(), *model.named_buffers()):
            if type(t) in PLAIN and t.layout == torch.strided:
                self.states.setdefault(t.data_ptr(), name)

    def at(self, frame: FrameType | None, around: str | None) -> tuple[str, nn.Module | None] | None:
        """Returns the innermost module of the model that `frame` runs in, with its name; None within FSDP or a
        collective. `around`: the name to return when the search reaches the region; if None, it goes on beyond it."""
        kinds = self._kinds
        while frame is not None:
            code = frame.f_code
            known = kinds.get(id(code))
            if known is None or known[1] is not code:
                known = kinds[id(code)] = self._judge(code), code
            kind = known[0]
            if kind == self._OTHER:
                pass
            elif kind == self._CALL:
                found = self._names.get(id(frame.f_locals["self"]))
                if found is not None:
                    return found
            elif kind == self._INFRASTRUCTURE:
                return None
            elif kind == self._RUN and around is not None:
                break
            frame = frame.f_back
        return around or "", None

    def state(self, t: Tensor, module: nn.Module | None, name: str) -> str:
        """Returns the name of the parameter or buffer that begins at the address of `t`, or ""."""
        place = t.data_ptr()
        if place not in self.states and module is not None:
            # FSDP puts others in their place while a module runs.
            for own, p in (*module.named_parameters(), *module.named_buffers()):
                if type(p) in PLAIN and p.data_ptr() == place:
                    return f"{name}.{own}" if name else own
        return self.states.get(place, "")

    @classmethod
    def _judge(cls, code: CodeType) -> int:
        if code is nn.Module._wrapped_call_impl.__code__:
            return cls._CALL
        if code.co_filename == regions.__file__ and code.co_name == "run":
            return cls._RUN
        file = code.co_filename.replace("\\", "/")
        if "torch/distributed/" in file and "/_checkpoint/" not in file:
            return cls._INFRASTRUCTURE
        return cls._OTHER


class Computations(Reader):
    """Notes what operators compute for all executions under way in one thread; tells `unseen` what it cannot see."""

    def __init__(self, fingerprints: Fingerprints, keep: int, unseen: Callable[[str], None]) -> None:
        self.executions: list[Computation] = []
        self.modules: Any = None
        self._fingerprints, self._keep, self._unseen = fingerprints, keep, unseen
        self.mode = OperatorsAroundCompiled(self, unseen=self._not_seen)

    def _not_seen(self, what: str, error: Exception) -> None:
        self._unseen(f"{what}: {regions.why(error)}")

    def before(self, op: Operator) -> None:
        known = known_of(op.func)
        if known.is_view and self._has_seen(op.args[0]):
            return
        place = self.modules.at(sys._getframe(), self.executions[-1].around)
        if place is not None:
            op.notes = place, known
            self._read(known.text, place, op.taken())

    def after(self, op: Operator) -> None:
        if op.notes is not None:
            self._made(*op.notes, op.made())

    def _has_seen(self, t: Any) -> bool:
        return type(t) in PLAIN and all(t.data_ptr() in execution.names for execution in self.executions)

    def _read(self, text: str, place: tuple[str, nn.Module | None], tensors: Iterable[Tensor]) -> None:
        for t in tensors:
            if type(t) not in PLAIN:
                continue
            begins = t.data_ptr()
            for execution in self.executions:
                name = execution.names.get(begins)
                if name is None:
                    name = execution.names[begins] = self.modules.state(t, place[1], place[0])
                if name and name not in execution.reads:
                    execution.reads[name] = self._note(Entry(place[0], text, 0, t.shape, t.dtype, False, True), t)
                    execution.read_at[name] = len(execution.results)
                    if name in self.modules.buffers:
                        execution.buffers[name] = t

    def _made(self, place: Any, known: "Known", tensors: Iterable[Tensor]) -> None:
        for number, t in enumerate(tensors):
            if type(t) not in PLAIN:
                self._unseen(f"tensors of the class {type(t).__name__}, as {known.text} makes them")
                continue
            begins = t.data_ptr()
            for execution in self.executions:
                execution.names.setdefault(begins, "")
            if number < known.results:
                noted = self._note(Entry(place[0], known.text, number, t.shape, t.dtype, known.draws, t.is_cpu), t)
                for execution in self.executions:
                    execution.results.append(noted)

    def _note(self, entry: Entry, t: Tensor) -> Noted:
        with torch._C._DisableTorchDispatch():
            flat = flattened(t)
            stride = max(1, -(-flat.numel() * flat.element_size() // self._keep))
            kept = flat[::stride].clone()
            words = self._fingerprints.shortened(kept if stride == 1 else flat)
            return Noted(entry, words.clone() if words.data_ptr() == flat.data_ptr() else words, kept, stride)


class Known(NamedTuple):
    """What is known of an operator."""

    text: str
    results: int
    """How many of its results are values that it computed."""
    draws: bool
    """Whether it draws random numbers."""
    is_view: bool
    reserved: tuple[int, ...]
    """Its results that are reserved space."""


_known: dict[Any, Known] = {}


def known_of(func: Any) -> Known:
    """Returns what is known of an operator."""
    known = _known.get(func)
    if known is not None:
        return known
    schema = getattr(func, "_schema", None)
    if schema is None:
        return Known(str(func), _ALL, False, False, ())
    reserved = () if "backward" in schema.name else next((r for n, r in _RESERVED.items() if n in schema.name), ())
    results = 0 if func.is_view or schema.name.startswith(_SKIPPED) else min(reserved, default=_ALL)
    draws = torch.Tag.nondeterministic_seeded in func.tags
    _known[func] = known = Known(str(func).removesuffix(".default"), results, draws, func.is_view, reserved)
    return known
