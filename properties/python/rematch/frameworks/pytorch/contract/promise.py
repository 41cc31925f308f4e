"""How a promise is written down, tried and judged."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import cleandoc, signature
from typing import Any

import torch
from torch import Tensor
from torch.utils import checkpoint as api

from rematch.frameworks.pytorch.trial import left_behind

Promise = Callable[[], None]

OPTIONS = signature(api.checkpoint).parameters
DECORATES = OPTIONS["function"].default is None
"""Whether checkpoint() without a function makes a decorator."""
RECENT = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 15)
"""Some promises are younger than the oldest PyTorch that is judged."""
BOTH = (True, False)


class Broken(Exception):
    """A promise is not kept; the text says in which way."""


def promise(collected: list[Promise], when: bool = True) -> Callable[[Promise], Promise]:
    """Adds a promise to those of its module. `when`: this PyTorch makes it."""

    def add(function: Promise) -> Promise:
        if when:
            collected.append(function)
        return function

    return add


def expect(holds: Any, otherwise: str) -> None:
    """`otherwise` says what is wrong unless it holds."""
    if not holds:
        raise Broken(otherwise)


def equal(got: Any, wanted: Any, what: str) -> None:
    """Tensors are compared to the bit."""
    if isinstance(wanted, Tensor):
        same = isinstance(got, Tensor) and got.dtype == wanted.dtype and torch.equal(got, wanted)
    else:
        same = type(got) is type(wanted) and got == wanted
    # Printing tensors takes longer than all the rest.
    if not same:
        raise Broken(f"{what}: {wanted!r} expected, got {got!r}")


def said(text: str, *words: str) -> None:
    """The text has all those words, in that order."""
    rest = text
    for word in words:
        expect(word in rest, f"{word!r} expected in: {text}")
        rest = rest.partition(word)[2]


class Caught:
    """What a scope of raises() ended with."""

    error: BaseException


@contextmanager
def raises(kind: type[BaseException], *words: str) -> Iterator[Caught]:
    """The scope raises an error of exactly that kind, with those words in that order."""
    caught = Caught()
    try:
        yield caught
    except Broken:
        raise
    except BaseException as error:
        # Frames of the error would keep alive what they hold.
        caught.error = error.with_traceback(None)
        expect(type(error) is kind, f"{kind.__name__} expected, got {_told(error)}")
        said(str(error), *words)
    else:
        raise Broken(f"{kind.__name__} expected, nothing was raised")


@contextmanager
def warns(*expected: tuple[type[Warning], str]) -> Iterator[None]:
    """The scope warns of these in that order, and of nothing else."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        yield
    texts = [f"{w.category.__name__}: {w.message}" for w in seen]
    equal([w.category for w in seen], [kind for kind, _ in expected], f"warnings {texts}, kinds")
    for text, (_, words) in zip(texts, expected, strict=True):
        said(text, words)


class Counted:
    """A function that counts its calls."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.calls = 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.calls += 1
        return self.function(*args, **kwargs)


class Changing:
    """A function that is another one when it is recomputed."""

    def __init__(self, forward: Callable[..., Any], recomputed: Callable[..., Any]) -> None:
        self._functions = [forward]
        self._recomputed = recomputed

    def __call__(self, *args: Any) -> Any:
        return (self._functions.pop() if self._functions else self._recomputed)(*args)


def leaf(*values: float, grad: bool = True) -> Tensor:
    """A tensor of these elements, of three without any."""
    return torch.tensor(values or (0.3, -0.7, 1.1), dtype=torch.float32, requires_grad=grad)


def seeded(seed: int) -> None:
    """torch.manual_seed() would also note where it was called from, for devices to come."""
    torch.default_generator.manual_seed(seed)


def gradient(output: Tensor, *inputs: Tensor, **options: Any) -> Any:
    """Of the sum of the output; a tuple of several."""
    found = torch.autograd.grad(output.sum(), inputs, **options)
    return found[0] if len(inputs) == 1 else found


def broken(kept: Promise) -> str:
    """What became of a promise, "" if it was kept. Random and other settings are left as found."""
    state = torch.get_rng_state()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            kept()
        wrong = left_behind()
        wrong = wrong and f"left behind: {wrong}"
    except Broken as why:
        wrong = str(why)
    except Exception as error:
        wrong = _told(error)
    finally:
        torch.set_rng_state(state)
    sentence = " ".join(cleandoc(kept.__doc__ or "").split())
    return wrong and f"{sentence} Not so ({kept.__name__}): {wrong}"


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
