"""Tells in which phase a training step is, though nothing but the model is known, and enters a mode for one phase."""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any
from unittest import mock
from weakref import WeakKeyDictionary, WeakSet

import torch
import torch.utils._python_dispatch as dispatch
from torch import nn
from torch.autograd import graph
from torch.optim import optimizer as of_optimizers

from rematch.journal.journal import BACKWARD, FORWARD
from rematch.journal.operators import Operators

BETWEEN, OPTIMIZER, STEPPED = "between the backward and the next forward", "optimizer", "stepped"
"""Phases of a step beside FORWARD, which includes the loss, and BACKWARD, which includes recomputations; clipping is
BETWEEN."""

_KEYS = torch._C._TorchDispatchModeKey
_TRACING = _KEYS.FAKE, _KEYS.PROXY, _KEYS.FUNCTIONAL
_OWN = "torch.", "rematch."
"""Libraries whose modes see nothing of an operator that runs again: policies of checkpoint() and counters among them."""
_push, _pop = torch._C._push_on_torch_dispatch_stack, torch._C._pop_torch_dispatch_stack


def is_traced() -> bool:
    """Whether what runs is traced or transformed, and computes no numbers of the step."""
    if torch.compiler.is_compiling() or torch._C._functorch.peek_interpreter_stack() is not None:
        return True
    return any(torch._C._get_dispatch_mode(key) is not None for key in _TRACING)


def in_backward() -> bool:
    """Whether a node of autograd runs in this thread: modes that are entered or left there come back when it ends."""
    return torch._C._current_graph_task_id() >= 0


class Phases:
    """The phases of one step: it begins with the forward of a model, and is over when over() is called."""

    _begun: "WeakSet[Phases]" = WeakSet()
    _lock = threading.Lock()
    _patched = ExitStack()
    _hears_of_optimizers = False
    has_optimizer: "WeakKeyDictionary[nn.Module, bool]" = WeakKeyDictionary()
    """For models whose steps were looked at, whether an optimizer of theirs stepped, in any step."""

    def __init__(self, model: nn.Module, changed: Callable[[str], None]) -> None:
        """`changed` is told of each phase that begins; "" and STEPPED are times that are not part of the step."""
        self.model, self.first_node = model, torch.autograd._get_sequence_nr()
        self.optimizer: torch.optim.Optimizer | None = None
        """The optimizer of the model's that stepped last. From then on, only further ones of them belong to the step."""
        self._phase, self._changed, self._thread = "", changed, threading.get_ident()
        self.has_optimizer.setdefault(model, False)

    def begin(self) -> None:
        """A step begins, with the forward of the model."""
        with self._lock:
            if not self._begun:
                self._patched.close()
                run = partial(_run_backward, graph._engine_run_backward)
                for place in (graph, torch.autograd):
                    self._patched.enter_context(mock.patch.object(place, "_engine_run_backward", run))
            self._begun.add(self)
        if not Phases._hears_of_optimizers:
            # They stay: a compiled optimizer compiles again when its hooks change.
            Phases._hears_of_optimizers = True
            of_optimizers.register_optimizer_step_pre_hook(partial(_tell_all, Phases._steps))
            of_optimizers.register_optimizer_step_post_hook(partial(_tell_all, Phases._has_stepped))
        self._to(FORWARD)

    def over(self) -> None:
        """The step is over."""
        self._to("")
        with self._lock:
            self._begun.discard(self)
            if not self._begun:
                self._patched.close()

    def runs_backward(self, begins: bool) -> None:
        """A backward begins, or is over."""
        if self._phase and self.optimizer is None:
            self._to(BACKWARD if begins else BETWEEN)

    def _to(self, phase: str) -> None:
        self._phase = phase
        self._changed(phase)

    def _steps(self, optimizer: torch.optim.Optimizer) -> None:
        if is_of(optimizer, self.model.parameters()):
            self.optimizer = optimizer
            self._to(OPTIMIZER)
        else:
            self._changed("")

    def _has_stepped(self, optimizer: torch.optim.Optimizer) -> None:
        self._changed(BETWEEN if self.optimizer is None else STEPPED if optimizer is self.optimizer else "")

    @classmethod
    def of_this_thread(cls) -> list["Phases"]:
        """Returns those steps that began in this thread."""
        with cls._lock:
            return [phases for phases in cls._begun if phases._thread == threading.get_ident()]


def _run_backward(real: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    # A backward within a backward, as of the reentrant variant, is part of it.
    told = [] if in_backward() or is_traced() else Phases.of_this_thread()
    for phases in told:
        phases.runs_backward(True)
    try:
        return real(*args, **kwargs)
    finally:
        for phases in told:
            phases.runs_backward(False)
        if told:
            Lasting.tidy()


def is_of(optimizer: torch.optim.Optimizer, parameters: Iterable[nn.Parameter]) -> bool:
    """Whether the optimizer updates one of the parameters."""
    own = {id(p) for p in parameters}
    return any(id(p) in own for group in optimizer.param_groups for p in group["params"])


def _tell_all(method: Callable[..., None], optimizer: torch.optim.Optimizer, *_: Any) -> None:
    # The optimizer of a hook of autograd steps in the backward.
    if torch.compiler.is_compiling() or in_backward():
        return
    for model in [model for model, has in list(Phases.has_optimizer.items()) if not has]:
        Phases.has_optimizer[model] = is_of(optimizer, model.parameters())
    for phases in Phases.of_this_thread():
        method(phases, optimizer)


class Lasting:
    """A mode that is entered here and left there, whatever other modes are entered and left in between.

    Where another mode ends while this one is above it, PyTorch would take this one off in its place. Modes of a job, as
    they are entered, go beneath this one, which so runs again what they do to results. Where PyTorch would put it back,
    in a node of autograd or under inference_mode(), it stays until tidy(), and `is_awake` is false.
    """

    _on: list["Lasting"] = []
    _patched = ExitStack()

    def __init__(self, mode: Operators) -> None:
        self._mode, self.is_awake = mode, False
        self._entered: tuple[bool, bool, int] | None = None

    def enter(self) -> None:
        """Enters the mode, as the innermost one."""
        if self._entered is not None and self._entered[2] != threading.get_ident():
            # It is on in a thread that began a step and did not end it.
            self._entered = None
            self._on.remove(self)
        self.tidy()
        self.is_awake = True
        if self._entered is None:
            if not self._on:
                pop, push = partial(_popped, dispatch._pop_mode), partial(_pushed, dispatch._push_mode)
                self._patched.enter_context(mock.patch.object(dispatch, "_pop_mode", pop))
                self._patched.enter_context(mock.patch.object(dispatch, "_push_mode", push))
            self._on.append(self)
            self._entered = _where()
            # Flags that compilers read are nested as modes are: they are left alone.
            _push(self._mode)

    def leave(self) -> None:
        """Leaves the mode, wherever it is."""
        self.is_awake = False
        self.tidy()

    @classmethod
    def tidy(cls) -> None:
        """Takes off the modes that were left, those that can be."""
        threads = {thread.ident for thread in threading.enumerate()}
        for lasting in [one for one in cls._on if not one.is_awake and one._entered is not None]:
            above, is_gone = [], lasting._entered[2] not in threads
            while lasting._entered == _where() and torch._C._len_torch_dispatch_stack() and not is_gone:
                above.append(_pop(None))
                is_gone = above[-1] is lasting._mode
            for mode in reversed(above[: len(above) - is_gone]):
                _push(mode)
            # Within an operator that it sees, a mode is off, and comes back.
            if is_gone:
                lasting._entered = None
                cls._on.remove(lasting)
        if not cls._on:
            cls._patched.close()

    @classmethod
    def has(cls, mode: Any) -> bool:
        """Whether a mode is a lasting one."""
        return any(one._mode is mode for one in cls._on)


def _where() -> tuple[bool, bool, int]:
    return torch.is_inference_mode_enabled(), in_backward(), threading.get_ident()


def _popped(pop: Callable[[Any], Any], key: Any = None) -> Any:
    """Takes the innermost mode off that is not a lasting one."""
    lasting = []
    while Lasting.has(found := pop(key)) and torch._C._len_torch_dispatch_stack():
        lasting.append(found)
    for mode in reversed(lasting):
        _push(mode)
    Lasting.tidy()
    return found


def _pushed(push: Callable[[Any], None], mode: Any) -> None:
    """Puts a mode on, beneath the lasting ones that are the innermost if it is one of the job."""
    lasting = []
    if not type(mode).__module__.startswith(_OWN):
        while Lasting.has(dispatch._get_current_dispatch_mode()):
            lasting.append(_pop(None))
    push(mode)
    for one in reversed(lasting):
        _push(one)


def has_modes_of_the_job() -> bool:
    """Whether a mode is on that is neither PyTorch's nor of this package."""
    stack = map(torch._C._get_dispatch_stack_at, range(torch._C._len_torch_dispatch_stack()))
    return any(not type(mode).__module__.startswith(_OWN) for mode in stack)


@contextmanager
def beneath() -> Iterator[None]:
    """Within, the modes of PyTorch and of this package are off; those of the job, which may stand for a device, are on."""
    all_modes = [_pop(None) for _ in range(torch._C._len_torch_dispatch_stack())]
    kept = [mode for mode in reversed(all_modes) if not type(mode).__module__.startswith(_OWN)]
    for mode in kept:
        _push(mode)
    try:
        yield
    finally:
        for _ in kept:
            _pop(None)
        for mode in reversed(all_modes):
            _push(mode)
