"""Tells of the regions of a run: every call of torch.utils.checkpoint.checkpoint(), under whatever name.

checkpoint() is imported under many names, kept in attributes and bound by partial(). All of them call two functions of
torch.utils.checkpoint that do the work, one for each variant. These are replaced here for a while: in a plain run by a
call of the function, otherwise by a function that tells when a region runs.
"""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch.utils.checkpoint as library

_library_function = library.CheckpointFunction
_GENERATORS = ("_checkpoint_without_reentrant_generator_impl", "_checkpoint_without_reentrant_generator")
"""Names of the function that the non-reentrant variant calls inside; releases before 2.12 have only the second."""
_BEFORE_ARGS = 5
"""How many options come before the function's arguments if the options are passed without names."""
FAILED = object()
"""Stands for the result of a begin() that failed: end() is not called then."""
AGAIN = "does not end: the recomputation of a region needs its own result"
_COMPOSABLE = "torch.distributed._composable.checkpoint_activation"


class CheckpointFunction(library.CheckpointFunction):
    """The reentrant variant, which raises where its backward runs within itself: PyTorch would recurse without end."""

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        if getattr(ctx, "runs", False):
            # A leaf that the region returned has the region as its history since.
            raise RuntimeError(AGAIN)
        ctx.runs = True
        try:
            return _library_function.backward(ctx, *grads)
        finally:
            ctx.runs = False


def why(error: BaseException) -> str:
    """Returns the type and text of an error, on one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"


def _noted(region: "Region", context_fn: Any) -> Any:
    """Returns a context_fn that does the same as the given one, and stores the contexts that it makes in the region."""
    if context_fn in (None, library.noop_context_fn):
        return context_fn
    region.context_fn = context_fn

    def made() -> Any:
        region.contexts = context_fn()
        return region.contexts

    return made


@dataclass
class Region:
    """One call of checkpoint(): `number` is its number in the run."""

    number: int
    function: Any
    reentrant: bool
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    memory: Any = None
    """What a listener keeps of the forward, for as long as a recomputation may come."""
    context_fn: Any = None
    """The context_fn that checkpoint() got, for instance for a selective policy; None without one."""
    contexts: Any = None
    """The contexts that context_fn made for this region: for the forward and for the recomputation."""
    returned: Any = None
    """What the region returned, at the time when its end is told; None if an error or early stop ended it, and for a
    forward of the non-reentrant variant, whose result does not pass through here."""

    def let_go(self) -> None:
        """Drops arguments and results: listeners may use them while the region runs, and must not keep memory alive."""
        self.args, self.kwargs, self.returned = (), {}, None


class Regions:
    """Is told of regions; this base class only counts them."""

    def __init__(self) -> None:
        self.count = 0
        self.reentrant = False
        self.unseen: dict[str, str] = {}
        """What begin() or end() failed to look at, each with a reason."""

    def safely(self, method: Callable[..., Any], *args: Any) -> Any:
        """Calls begin() or end(), and catches their errors: PyTorch would keep its hooks if an error reached it."""
        try:
            return FAILED if args == (FAILED,) else method(*args)
        except Exception as error:
            self.unseen["a region"] = why(error)
            return FAILED

    def begin(self, region: Region, recomputes: bool) -> Any:
        """A region begins to run. The returned value is passed to end()."""

    def end(self, token: Any) -> None:
        """The region is over, perhaps because of an error or of early stop."""

    def backward(self) -> None:
        """The backward begins."""

    def attached(self) -> AbstractContextManager[Any]:
        """Returns the context that surrounds the run, after everything was put back."""
        return nullcontext()


@contextmanager
def plain() -> Iterator[Regions]:
    """Within, checkpoint() calls its function and does nothing else."""
    regions = Regions()

    class Plain:
        @staticmethod
        def apply(function: Any, preserve: bool, *args: Any) -> Any:
            regions.count += 1
            return function(*args)

    def generator(*args: Any, **keywords: Any) -> Iterator[None]:
        regions.count += 1
        yield

    with _exchanged(Plain, lambda real: generator):
        yield regions


@contextmanager
def told(regions: Regions) -> Iterator[Regions]:
    """Within, checkpoint() tells `regions` what it runs."""
    real_function = library.CheckpointFunction
    if real_function is _library_function:
        real_function = CheckpointFunction

    def listening(region: Region) -> Callable[..., Any]:
        regions.count += 1
        runs = 0

        def run(*args: Any, **keywords: Any) -> Any:
            nonlocal runs
            recomputes = runs > 0 or not region.reentrant
            runs += 1
            region.args, region.kwargs = args, keywords
            token = regions.safely(regions.begin, region, recomputes)
            try:
                region.returned = region.function(*args, **keywords)
                return region.returned
            finally:
                regions.safely(regions.end, token)
                region.let_go()

        return run

    class Reentrant:
        @staticmethod
        def apply(function: Any, preserve: bool, *args: Any) -> Any:
            region = Region(regions.count, function, True, args, {})
            regions.reentrant = True
            return real_function.apply(listening(region), preserve, *args)

    def around(real: Any) -> Any:
        def generator(function: Any, *rest: Any, **options: Any) -> Iterator[None]:
            args, kwargs = rest[:2] if "preserve_rng_state" in options else (rest[_BEFORE_ARGS:], options)
            region = Region(regions.count, function, False, args, kwargs)
            if "context_fn" in options:
                options["context_fn"] = _noted(region, options["context_fn"])
            elif "preserve_rng_state" not in options and len(rest) > 1:
                rest = (rest[0], _noted(region, rest[1]), *rest[2:])
            work = real(listening(region), *rest, **options)
            next(work)
            try:
                token = regions.safely(regions.begin, region, False)
                try:
                    yield
                finally:
                    regions.safely(regions.end, token)
                    region.let_go()
            except BaseException as error:
                work.throw(error)
                raise
            next(work, None)

        return generator

    with _exchanged(Reentrant, around):
        yield regions


_exchanges: list[ExitStack] = []
_over: list[ExitStack] = []
_lock = threading.Lock()


@contextmanager
def _exchanged(reentrant: Any, generator: Callable[[Any], Any]) -> Iterator[None]:
    stack = ExitStack()
    with _lock:
        stack.enter_context(mock.patch.object(library, "CheckpointFunction", reentrant))
        for place in (library, sys.modules.get(_COMPOSABLE)):
            name = next((n for n in _GENERATORS if hasattr(place, n)), None)
            if name is not None:
                stack.enter_context(mock.patch.object(place, name, generator(getattr(place, name))))
        _exchanges.append(stack)
    try:
        yield
    finally:
        with _lock:
            _over.append(stack)
            # Threads may end theirs in another order, but what was exchanged last is put back first.
            while _exchanges and _exchanges[-1] in _over:
                _over.remove(last := _exchanges.pop())
                last.close()
