"""The target that is judged, with its arguments: a module or a function, as it was before the first run."""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any

import torch
from torch import Tensor, nn

from rematch.journal.regions import why
from rematch.safe import wide
from rematch.safe.branches import Branches
from rematch.safe.generators import random_states, seed_all, set_random_states
from rematch.safe.process import Process
from rematch.safe.state import State
from rematch.safe.tape import Tape
from rematch.safe.wide import length_of, stretched


class Target:
    """The target that is judged, with its arguments. `make`, if given, makes it again for every run."""

    def __init__(
        self,
        target: Callable[..., Any] | None,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        make: Callable[[], Callable[..., Any]] | None = None,
        loss: Callable[[Any], Tensor] | None = None,
        switch: Callable[[Any, bool], None] | None = None,
        within: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> None:
        self.make, self.loss, self.switch, self.within = make, loss, switch, within
        self.args, self.kwargs = args, dict(kwargs)
        self.before, self.process = random_states(), Process()
        self.is_model = False
        """Whether the loss is the one that the model returns as `loss`, unless a loss function was given."""
        self.grad = True
        """Whether forwards have a backward; if not, they run without gradients."""
        self.common: set[str] | None = None
        """Names of the outputs that the target returns with its switch off and on; None: all of them."""
        self.rolls = True
        """Whether tokens change places from one microbatch to the next."""
        self.copies = Copies()
        self.branches: Branches | None = None
        """Notes which sides of branches plain forwards take."""
        self.slowest = -1.0
        """Seconds of the slowest plain run after the first one, which warms up; -1: there was none."""
        self.unseen: dict[str, str] = {}
        """What no run sees, each with a reason."""
        self.tape: Tape | None = None
        """Replaces the clock and the randomness of the system in every run; None: they are read."""
        if make is not None:
            seed_all(0)
            target = make()
        assert target is not None
        self.function = target
        self.state = State(self._roots()).kept()
        self.process.look_at(self.state.functions())
        given = self.tensors
        self.floats = [name for name, t in given.items() if t.is_floating_point() or t.is_complex()]
        self.asked = [name for name, t in given.items() if t.requires_grad]
        self.grads = self.asked or self.floats
        """The inputs that get gradients: those that require grad, or all floating-point ones if none does."""

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The tensors among the arguments, by name."""
        modules = State(self._arguments()).modules()
        parts = {id(t) for m in modules.values() for t in (*m.parameters(), *m.buffers())}
        return {name: t for name, t in State(self._arguments()).tensors(tags=False).items() if id(t) not in parts}

    @property
    def length(self) -> int:
        """The length of the sequence among the arguments; 0 if there is none."""
        return length_of(self.tensors)

    @property
    def name(self) -> str:
        """The name of the target in reports."""
        function = self.function
        while hasattr(function, "func"):
            function = function.func
        name = str(getattr(function, "__qualname__", None) or type(function).__name__)
        return name if self.grad else f"{name} without gradients"

    def begin(self, seed: int) -> None:
        """Puts everything back as it was before the first run."""
        if self.make is not None:
            seed_all(0)
            self.copies, self.function = Copies(), self.make()
            self.unseen.update(self.state.unseen)
            self.state = State(self._roots()).kept()
        self.state.restore()
        seed_all(seed)

    @contextmanager
    def given_also(self, more: Mapping[str, Tensor]) -> Iterator[None]:
        """Within, the keyword arguments `more` are passed, too."""
        own, self.kwargs = self.kwargs, {**self.kwargs, **more}
        try:
            yield
        finally:
            self.kwargs = own

    def loss_of(self, returned: Any, weigh: bool = True) -> Tensor | None:
        """Returns the loss: by the function that was given, the model's own, or else a sum of the outputs, without
        those that only one side of the switch returns, such as a cache. `weigh`: weighs the sum, which needs memory."""
        if self.loss is not None:
            return self.loss(returned)
        own = None
        # The loss may be a property that refuses.
        with suppress(Exception):
            own = returned.get("loss") if isinstance(returned, Mapping) else getattr(returned, "loss", None)
        if self.is_model and isinstance(own, Tensor) and own.numel() == 1 and own.requires_grad:
            return own
        outputs = State({"output": returned}).tensors().items()
        return total_of([t for name, t in outputs if self.common is None or name in self.common], weigh)

    def end(self) -> None:
        """Puts everything back as the user passed it."""
        self.process.restore()
        self.state.restore()
        self.unseen.update(self.state.unseen)
        set_random_states(self.before)

    def inputs(
        self,
        grads: Sequence[str],
        microbatch: int,
        in_float64: bool = False,
        own_gradients: bool = True,
        length: int = 0,
    ) -> tuple[list[Any], dict[str, Any], dict[str, Tensor]]:
        """Returns fresh positional and keyword arguments, and the leaves among them that get gradients, `grads`, by
        name.

        Copies of the leaves are passed, as activations would be, so that a forward may write to them. Each `microbatch`
        has other values, and sequences have the `length`, if given. `own_gradients`: no two leaves share a gradient.
        """
        memo: dict[int, Any] = {id(m): m for m in State(self._arguments()).modules().values()}
        leaves: dict[str, Tensor] = {}
        given = self.tensors
        values = stretched(given, length) if length else given
        for name, t in given.items():
            fresh = values[name].detach().clone()
            fresh = wide.widened(fresh) if in_float64 else fresh
            if microbatch and name in self.floats:
                fresh = fresh * (1 + microbatch / 2)
            elif microbatch and self.rolls and _are_tokens(fresh):
                fresh = fresh.roll(microbatch, -1)
            if name in grads:
                leaves[name] = fresh.detach().requires_grad_()
                # Two leaves may get one tensor as their gradients, to which the next backward adds twice
                # (https://github.com/pytorch/pytorch/issues/34082).
                if own_gradients:
                    leaves[name].register_hook(lambda grad: None if grad is None else grad.clone())
                fresh = leaves[name].clone()
            memo[id(t)] = fresh
        for t in self.tensors.values():
            # Attributes that a caller has set on a tensor are copied with it; those of a subclass are there already.
            hung = {name: value for name, value in t.__dict__.items() if name not in memo[id(t)].__dict__}
            for part in State({"": hung}).tensors().values():
                memo.setdefault(id(part), part.detach().clone())
            memo[id(t)].__dict__.update(copy.deepcopy(hung, memo))
        args = [self._again(f"input {i}", value, memo) for i, value in enumerate(self.args)]
        return args, {key: self._again(f"input {key}", value, memo) for key, value in self.kwargs.items()}, leaves

    def _again(self, name: str, value: Any, memo: dict[int, Any]) -> Any:
        try:
            return copy.deepcopy(value, memo)
        except Exception as error:
            # Every run gets the same object, such as a file or an iterator.
            self.unseen[f"what a run changes in {name}"] = f"it cannot be copied ({why(error)})"
            return value

    def _arguments(self) -> dict[str, Any]:
        return named_arguments(self.args, self.kwargs)

    def _roots(self) -> dict[str, Any]:
        return {"": self.function, **State(self._arguments()).modules()}


def _are_tokens(t: Tensor) -> bool:
    """Whether the elements are numbers that may change places, and neither a mask nor offsets."""
    numbers = not (t.is_floating_point() or t.is_complex() or t.dtype == torch.bool) and t.layout == torch.strided
    if not numbers or t.is_nested or t.is_meta or t.numel() < 2 or t.max() < 2:
        return False
    return t.dim() > 1 or bool((t.diff() < 0).any() and (t.diff() > 0).any())


def named_arguments(args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arguments by the names that reports use."""
    return {**{f"input {i}": a for i, a in enumerate(args)}, **{f"input {k}": a for k, a in kwargs.items()}}


def copied(t: Tensor) -> Tensor:
    """Returns a copy of a tensor, which nothing changes any more."""
    return t.detach().clone()


class Copies:
    """Copies tensors: runs in which a tensor has the same values share one copy."""

    def __init__(self) -> None:
        self._last: dict[int | str, Tensor] = {}

    def __call__(self, t: Tensor, name: str = "") -> Tensor:
        """Returns a copy of `t`, which nothing changes any more. Equal tensors under one `name`, or equal states of one
        object without a name, share a copy."""
        if type(t) not in (Tensor, nn.Parameter) or t.layout != torch.strided or t.is_nested or t.is_meta:
            return copied(t)
        key, fresh = name or id(t), t.detach()
        last = self._last.get(key)
        same = last is not None and (last.dtype, last.device) == (fresh.dtype, fresh.device)
        if last is None or not same or not torch.equal(last, fresh):
            last = self._last[key] = fresh.clone()
        return last


def has_history(t: Tensor) -> bool:
    return t.requires_grad and (t.grad_fn is not None or t.is_leaf)


def total_of(outputs: Sequence[Tensor], weigh: bool = True) -> Tensor | None:
    """Returns a sum of all elements; `weigh` gives each element a weight of its own, the same in every run."""
    weights = torch.Generator().manual_seed(11)
    total: Tensor | None = None
    for output in outputs:
        if not has_history(output):
            continue
        if output.is_nested:
            output = torch.cat([part.reshape(-1) for part in output.unbind()])
        if output.is_complex():
            output = torch.view_as_real(output)
        if weigh:
            output = output * torch.randn(output.shape, generator=weights).to(output.device, output.dtype)
        part = output.sum().float()
        total = part if total is None else total + part.to(total.device)
    return total
