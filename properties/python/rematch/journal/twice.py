"""Runs operators a second time, on the same tensors and random numbers, and says what a difference comes from."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from rematch.journal.comparison import ROUNDING, told_apart
from rematch.journal.computations import PLAIN, known_of
from rematch.journal.fingerprint import bits, flattened
from rematch.journal.operators import Operator, Reader, tensors
from rematch.journal.phases import beneath, has_modes_of_the_job, is_traced

ONCE = "one execution was wrong, and that does not recur: hardware?"
RECURS = "it recurs: hardware, or the kernel"
UNORDERED = "the operator is not deterministic"
EXECUTIONS = 16
"""How often an operator runs in all once two executions differ."""
_UNLIKE = ("empty", "_empty", "new_empty", "resize", "set_", "record_stream", "_local_scalar", "is_", "_has_")
_UNLIKE += ("_cudnn_init",)
"""Operators whose names begin so make no values, or must not run twice."""
_UNDECLARED = "running_mean", "running_var", "dropout_state"
"""Arguments that batch norms and cuDNN's recurrent layers write though their schemas do not say so."""
_LIBRARIES = {"aten", "torchvision"}
"""Libraries whose operators run again. Others may draw, count, or talk to other ranks, and not say so."""
_PER_TENSOR = ("_foreach_", "_fused_", "_amp_foreach_")
"""Operators on lists of tensors, of which one place in each list is run twice: their states are large."""


@dataclass(frozen=True)
class Repeated:
    """How executions of an operator on the same tensors differ."""

    kind: str
    """ONCE, RECURS or UNORDERED."""
    used: bool
    """Whether the execution that the step goes on with is one that differs from most."""
    unlike: int
    """How many of the executions differ from the most frequent result."""
    element: int
    """The first element that differs, as a flat index of the result."""
    values: tuple[Any, Any]
    """What it is in the execution that the step goes on with, and in one that differs."""
    differing: int
    elements: int
    other: int
    """Which execution differs from that one."""
    units: float
    """How far apart executions are, in units in the last place of the largest element."""

    def snapshot(self, results: Sequence[Sequence[Tensor]]) -> dict[str, Any]:
        """Returns the results of the execution that the step goes on with, and of one that differs."""
        return {"used": list(results[0]), "other": list(results[self.other])}

    def __str__(self) -> str:
        first, other = told_apart(*self.values)
        text = f"element {self.element:,} is {first}, and {other} when it runs again on the same tensors "
        text += f"({self.differing:,} of {self.elements:,} elements differ); of {EXECUTIONS} executions {self.unlike} "
        if self.kind == ONCE:
            return f"{text}differs{', the one whose result is used' if self.used else ''}: {ONCE}"
        apart = f"by up to {self.units:.3g} units in the last place of the largest element"
        return f"{text}differ {apart}: {self.kind}"


class Twice(Reader):
    """Runs again those operators whose numbers are in `chosen`, and tells of each that differs, with what it takes.

    An operator that draws runs from the same random state, one that writes runs on copies of what it writes. Neither
    the tensors nor the random states of the run change. Operators count from 0; `count` is how many there were.
    """

    def __init__(
        self, tell: Callable[[Operator, Sequence[Tensor], Repeated], None], counted: Callable[[Operator], bool]
    ) -> None:
        """`counted` is asked of each operator, while none is chosen, whether it runs again."""
        self.count = self.ran = self.round = 0
        self.chosen: range | None = None
        self.listens = False
        """Whether operators count: a mode may be on for longer than it is meant to be."""
        self.snapshot: Path | None = None
        """Where the first operator that differs is written, for replay()."""
        self._tell, self._counted = tell, counted

    def skips(self, types: Sequence[type]) -> bool:
        # Wrappers such as DTensor may talk to other ranks: what they compute here are operators of their own.
        return any(hasattr(kind, "__tensor_flatten__") for kind in types)

    def before(self, op: Operator) -> None:
        if not self.listens:
            return
        number, self.count = self.count, self.count + 1
        chosen = self._counted(op) if self.chosen is None else number in self.chosen
        if chosen and _is_repeatable(op.func) and all(map(is_plain, op.taken())) and not is_traced():
            with torch._C._DisableTorchDispatch():
                # Each round takes another place of lists.
                again = _Again(op, number + self.round)
                op.notes = None if again.is_tangled(op) else again

    def after(self, op: Operator) -> None:
        again: _Again | None = op.notes
        if again is None:
            return
        op.notes, state = None, again.state()
        try:
            with torch._C._DisableTorchDispatch():
                first = again.results(again.part_of(op.result), again.given)
                if not all(map(is_plain, first)) or again.has_resized() or _arrives_later(op, first):
                    return
            self.ran += 1
            results = [first, again.run()]
            differing = _differing(*results)
            if differing is None:
                return
            results += [again.run() for _ in range(EXECUTIONS - 2)]
        finally:
            again.set_state(state)
        with torch._C._DisableTorchDispatch():
            terms = max((t.numel() for t in again.taken), default=1) / max(1, results[0][differing].numel())
            repeated = _judge([result[differing] for result in results], terms)
            if self.snapshot is not None:
                torch.save({"result": differing, **again.snapshot(), **repeated.snapshot(results)}, self.snapshot)
                self.snapshot = None
        self._tell(op, again.taken, repeated)


class _Again:
    """What it takes to run an operator again."""

    def __init__(self, op: Operator, place: int) -> None:
        """`place`: which place in lists of tensors runs again, if the operator is one on lists."""
        self._func, self._place, self._positional = op.func, None, list(arguments(op))[: len(op.args)]
        schema = op.func._schema
        if schema.name.split("::")[1].startswith(_PER_TENSOR) and str(schema.arguments[0].type) == "List[Tensor]":
            self._place = place
        self.given = {name: self.part_of(value) for name, value in arguments(op).items()}
        """The arguments of the run itself, by name."""
        self.taken = list(tensors(tuple(self.given.values())))
        self._written = list(written(op))
        spans = [_span(t) for t in tensors([self.given[name] for name in self._written])]
        self._before = {
            name: _copied(value)
            for name, value in self.given.items()
            if spans and (name in self._written or any(_overlap(_span(t), spans) for t in tensors((value,))))
        }
        """Copies of what the operator writes, and of what shares memory with that."""
        # Modes of the job, which run with the operator, may draw.
        self._generator = _generator(op) if op.draws or has_modes_of_the_job() else None
        self._state = self.state()

    def state(self) -> Tensor | None:
        """Returns the random state that the operator draws from, if it draws."""
        return None if self._generator is None else self._generator.get_state()

    def set_state(self, state: Tensor | None) -> None:
        """Sets the random state that the operator draws from."""
        if self._generator is not None and state is not None:
            self._generator.set_state(state)

    def run(self) -> list[Tensor]:
        """Runs the operator on copies of what it writes, and returns what it returned and wrote."""
        self.set_state(self._state)
        with torch._C._DisableTorchDispatch():
            given = {**self.given, **{name: _copied(value) for name, value in self._before.items()}}
        args = [given[name] for name in self._positional]
        with beneath():
            returned = self._func(*args, **{n: v for n, v in given.items() if n not in self._positional})
        with torch._C._DisableTorchDispatch():
            return self.results(returned, given)

    def is_tangled(self, op: Operator) -> bool:
        """Whether the one place that runs again shares memory with another that the operator writes."""
        if self._place is None:
            return False
        given = arguments(op)
        if any(isinstance(value, Tensor) and value.numel() > 1 for value in given.values()):
            # A number for each place.
            return True
        others = [_span(t) for name in self._written for t in tensors((given[name],))]
        for name in self._written:
            for t in tensors((self.given[name],)):
                others.remove(_span(t))
        return any(_overlap(_span(t), others) for t in self.taken)

    def has_resized(self) -> bool:
        """Whether the run resized what it wrote, of which PyTorch would warn again."""
        pairs = ((self.given[name], self._before[name]) for name in self._written if name in self._before)
        return any(a.shape != b.shape for pair in pairs for a, b in zip(*map(_tensors_of, pair), strict=True))

    def snapshot(self) -> dict[str, Any]:
        """Returns what it takes to run the operator again elsewhere."""
        given = {**self.given, **self._before, "generator": None}
        args, names = [given[name] for name in self._positional], list(self.given)[len(self._positional) :]
        kwargs = {name: given[name] for name in names if name != "generator"}
        return {"operator": str(self._func), "args": args, "kwargs": kwargs, "state": self._state}

    def part_of(self, value: Any) -> Any:
        """Returns the part of an argument or a result that runs again: of a list, if only one place does, that one."""
        if self._place is None or not isinstance(value, (list, tuple)) or not value:
            return value
        return [value[self._place % len(value)]]

    def results(self, returned: Any, given: dict[str, Any]) -> list[Tensor]:
        """Returns what a run with the arguments `given` returned and wrote."""
        # What is written beside lists depends on all of their tensors.
        wrote = [given[n] for n in self._written if self._place is None or isinstance(given[n], list)]
        made = list(tensors(wrote))
        there = {id(t) for t in made}
        new = [t for t in tensors((returned,)) if id(t) not in there]
        return made + [t for i, t in enumerate(new) if i not in known_of(self._func).reserved]


def arguments(op: Operator) -> dict[str, Any]:
    """Returns the arguments of an operator by name, those first that were passed without."""
    names = [a.name for a in op.func._schema.arguments]
    return {**dict(zip(names, op.args, strict=False)), **op.kwargs}


def written(op: Operator) -> dict[str, Any]:
    """Returns the arguments that an operator writes, by name."""
    given = arguments(op)
    infos = {a.name: a.alias_info for a in op.func._schema.arguments if a.name in given}
    names = (name for name, info in infos.items() if name in _UNDECLARED or (info is not None and info.is_write))
    return {name: given[name] for name in names if given[name] is not None}


_repeatable: dict[Any, bool] = {}


def _is_repeatable(func: Any) -> bool:
    known = _repeatable.get(func)
    if known is None:
        known = _repeatable[func] = hasattr(func, "_schema") and _computes(func)
    return known


def _computes(func: Any) -> bool:
    """Whether an operator makes or writes values, and nothing beside that."""
    library, name = func._schema.name.split("::")
    aliases = [r.alias_info for r in func._schema.returns if r.alias_info is not None]
    is_view = func.is_view or not all(alias.is_write for alias in aliases)
    is_view = is_view or torch.Tag.inplace_view in func.tags
    return library in _LIBRARIES and not name.startswith(_UNLIKE) and not is_view


def _tensors_of(value: Any) -> list[Tensor]:
    return list(tensors((value,)))


def _copied(value: Any) -> Any:
    return tree_map_only(Tensor, _copy, value)


def _copy(t: Tensor) -> Tensor:
    """Returns a copy with the same strides and the same place in a line of the cache: kernels depend on both."""
    t = t.detach()
    behind = t.data_ptr() % 64 // t.element_size()
    if not t.numel() or t.is_conj() or t.is_neg() or (not behind and t.is_contiguous()):
        return t.clone()
    extent = _extent(t)
    room = t.new_empty(extent + behind)
    room[behind:].copy_(t.as_strided((extent,), (1,), t.storage_offset()))
    return room.as_strided(t.shape, t.stride(), behind)


def _extent(t: Tensor) -> int:
    """Returns how many elements lie between the first and the last one, these included."""
    return 1 + sum((n - 1) * stride for n, stride in zip(t.shape, t.stride(), strict=True)) if t.numel() else 0


def _span(t: Tensor) -> tuple[int, int]:
    return t.data_ptr(), t.data_ptr() + _extent(t) * t.element_size()


def _overlap(span: tuple[int, int], spans: Sequence[tuple[int, int]]) -> int:
    return sum(span[0] < end and begin < span[1] for begin, end in spans)


def is_plain(t: Tensor) -> bool:
    if type(t) not in PLAIN or t.layout != torch.strided or t.device.type == "meta":
        return False
    return not (t.is_quantized or t.is_nested or t._is_zerotensor())


def _arrives_later(op: Operator, results: Sequence[Tensor]) -> bool:
    """Whether a result may still be on its way from a device: a copy that nobody waits for."""
    return any(t.is_cpu for t in results) and not all(t.is_cpu for t in op.taken())


def _generator(op: Operator) -> torch.Generator:
    given = next((a for a in (*op.args, *op.kwargs.values()) if isinstance(a, torch.Generator)), None)
    if given is None:
        device = next((t.device for t in op.taken()), torch.device(op.kwargs.get("device") or "cpu"))
        cuda = device.type == "cuda"
        given = torch.cuda.default_generators[device.index or 0] if cuda else torch.default_generator
    return given


def _differing(first: Sequence[Tensor], second: Sequence[Tensor]) -> int | None:
    """Returns which of the results differs first; None if all have the same bits."""
    with torch._C._DisableTorchDispatch():
        for number, (a, b) in enumerate(zip(first, second, strict=True)):
            if a.shape != b.shape or not torch.equal(*_as_words(a, b)):
                return number
    return None


def _as_words(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the bits of both in one order: that of memory if that is the same."""
    if a.stride() == b.stride() and all(
        t.storage_offset() == 0 and t.untyped_storage().nbytes() == t.numel() * t.element_size() for t in (a, b)
    ):
        count = a.numel()
        a, b = a.detach().as_strided((count,), (1,)), b.detach().as_strided((count,), (1,))
        if a.numel() * a.element_size() % 8 == 0 and not a.is_complex():
            return a.view(torch.int64), b.view(torch.int64)
    return bits(flattened(a)), bits(flattened(b))


def _judge(results: Sequence[Tensor], terms: float) -> Repeated:
    """Judges executions of an operator. `terms`: how many terms a result may be the sum of."""
    flat = [flattened(t) for t in results]
    words = [bits(f) for f in flat]
    kinds: list[list[int]] = []
    for i, w in enumerate(words):
        like = next((k for k in kinds if w.shape == words[k[0]].shape and torch.equal(w, words[k[0]])), None)
        kinds.append([i]) if like is None else like.append(i)
    most = max(kinds, key=len)
    unlike = len(results) - len(most)
    other = most[0] if 0 not in most else next(i for i in range(1, len(results)) if i not in most)
    are_alike = all(w.shape == words[0].shape for w in words)
    size = min(len(words[0]), len(words[other]))
    places = (words[0][:size] != words[other][:size]).nonzero().flatten()
    place, parts = int(places[0]) if len(places) else 0, 2 if results[0].is_complex() else 1
    units = 0.0 if are_alike else float("inf")
    if are_alike and (results[0].is_floating_point() or results[0].is_complex()):
        wide = torch.stack([f.double() for f in flat])
        finite = wide.isfinite().all(0)
        same = torch.equal(*(wide[i][~finite].nan_to_num(5.0, 6.0, 7.0) for i in (0, other)))
        wide = wide[:, finite] if same else wide
        apart = (wide.max(0).values - wide.min(0).values).max()
        largest = wide.abs().max() * torch.finfo(flat[0].dtype).eps
        units = float(apart / largest) if largest > 0 and bool(apart.isfinite()) else float("inf")
    if unlike == 1:
        kind = ONCE
    else:
        # Each sum of n terms has at most n - 1 roundings, of partial sums that are mostly no larger than results.
        kind = UNORDERED if 0 < units <= max(ROUNDING, terms) else RECURS
    return Repeated(
        kind,
        0 not in most,
        unlike,
        place // parts,
        tuple(f[place].item() if len(f) > place else float("nan") for f in (flat[0], flat[other])),
        places.numel(),
        results[0].numel(),
        other,
        units,
    )


def replay(path: str | Path) -> tuple[str, bool]:
    """Runs the operator of a snapshot again, on this machine. Returns a sentence, and whether it computes each time
    what the step went on with. Raises ValueError if the operator is not known here."""
    kept = torch.load(path, weights_only=True)
    try:
        func = attrgetter(kept["operator"])(torch.ops)
    except AttributeError as error:
        raise ValueError(f"{path}: the operator {kept['operator']} is not known here") from error
    like = [0, 0]
    for _ in range(EXECUTIONS):
        op = Operator(0, func, _copied(kept["args"]), _copied(kept["kwargs"]))
        again = _Again(op, 0)
        if kept["state"] is not None:
            again.set_state(kept["state"])
        made = again.results(func(*op.args, **op.kwargs), again.given)
        for i, results in enumerate((kept["used"], kept["other"])):
            like[i] += _differing(results, made) is None
    text = (
        f"{kept['operator']} runs {EXECUTIONS} times here: {like[0]} times as in the step, {like[1]} times as when it "
    )
    return text + f"ran again there, {EXECUTIONS - sum(like)} times otherwise", like[0] == EXECUTIONS
