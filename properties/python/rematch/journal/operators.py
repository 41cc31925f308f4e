"""Tells readers of the operators of a run.

This is the only mode of the package that intercepts operators. A reader overrides the methods of the events that it
wants; the others cost nothing. Readers cannot raise into PyTorch: what one fails to see is passed to `unseen`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from rematch.journal.regions import Region

Unseen = Callable[[str, Exception], None]
"""A function that is told what was not seen, and why."""


class Operator:
    """An operator that runs: an event of the journal. It has a `result` after it ran."""

    __slots__ = ("args", "func", "kwargs", "notes", "number", "result")

    def __init__(self, number: int, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        self.number, self.func, self.args, self.kwargs = number, func, args, kwargs
        self.result: Any = None
        self.notes: Any = None
        """What a reader keeps from before() to after()."""

    @property
    def name(self) -> str:
        """The operator's name with its overload, such as "aten.add.Tensor"."""
        return str(self.func)

    @property
    def draws(self) -> bool:
        """Whether the operator draws random numbers."""
        return torch.Tag.nondeterministic_seeded in getattr(self.func, "tags", ())

    def taken(self) -> Iterator[Tensor]:
        """Yields the tensors among the operator's arguments."""
        return tensors((*self.args, *self.kwargs.values()))

    def made(self) -> Iterator[Tensor]:
        """Yields the tensors that the operator returned."""
        return tensors((self.result,))


@dataclass(eq=False)
class Execution:
    """One execution of a region: its forward, or a recomputation."""

    region: Region
    recomputes: bool
    notes: Any = None
    """What a reader keeps from begins() to ends()."""


class Reader:
    """Is told what a run does. This base class ignores all events."""

    def skips(self, types: Sequence[type]) -> bool:
        """Whether an operator on tensor subclasses of these types is left to them: the reader is then told of the
        operators that they run instead."""
        return False

    def before(self, op: Operator) -> None:
        """An operator is about to run."""

    def after(self, op: Operator) -> None:
        """An operator ran without an error."""

    def backward(self) -> None:
        """The backward is about to begin, if the journal is told of it."""

    def enters(self, module: str) -> None:
        """The forward of the submodule called `module` begins; "" is the model."""

    def leaves(self, module: str, returned: Any) -> None:
        """That forward is over; `returned` is None if an error, or early stop, ended it."""

    def begins(self, execution: Execution) -> None:
        """A region begins to run."""

    def ends(self, execution: Execution) -> None:
        """The region is over, perhaps because of an error or of early stop."""


def _tell(mode: "Operators", method: Callable[[Operator], None], op: Operator) -> None:
    try:
        method(op)
    except Exception as error:
        if mode.unseen is None:
            raise
        mode.unseen(op.name, error)


def _dispatch(mode: "Operators", func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
    if mode.skips and any(skips(types) for skips in mode.skips):
        return NotImplemented
    mode.number += 1
    op = Operator(mode.number, func, args, kwargs or {})
    for before in mode.before:
        _tell(mode, before, op)
    op.result = func(*args, **op.kwargs)
    for after in mode.after:
        _tell(mode, after, op)
    return op.result


class Operators(TorchDispatchMode):
    """Tells readers of every operator that runs within, below autograd. Compiled code runs uncompiled within. Without
    `unseen`, errors of readers are raised, as subjects need it."""

    supports_higher_order_operators = True
    __torch_dispatch__ = _dispatch

    def __init__(self, *readers: Reader, unseen: Unseen | None = None) -> None:
        super().__init__()
        self.number, self.unseen = 0, unseen
        self.skips = [r.skips for r in readers if overrides(r, "skips")]
        self.before = [r.before for r in readers if overrides(r, "before")]
        self.after = [r.after for r in readers if overrides(r, "after")]


class OperatorsAroundCompiled(Operators):
    """Leaves compiled code compiled, and does not see into it: uncompiled it would compute other bits."""

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True


class OperatorsOfEager(Operators):
    """Does not guard __torch_dispatch__() against compilation, which is slow: for runs that compile nothing."""

    __torch_dispatch__ = _dispatch

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


def overrides(reader: Reader, method: str) -> bool:
    """Whether a reader overrides `method`, to be told of its event."""
    return getattr(type(reader), method) is not getattr(Reader, method)


_kinds: dict[type, tuple[bool, bool]] = {}
"""For each class, whether it is a class of tensors, and whether of lists or tuples."""


def tensors(values: Sequence[Any]) -> Iterator[Tensor]:
    """Yields the tensors among `values`, and in the lists and tuples among them."""
    for value in values:
        kind = type(value)
        # The check of instances by PyTorch takes longer than a small operator.
        known = _kinds.get(kind)
        if known is None:
            known = _kinds[kind] = issubclass(kind, Tensor), issubclass(kind, (list, tuple))
        if known[0]:
            yield value
        elif known[1]:
            yield from tensors(value)
