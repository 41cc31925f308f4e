"""Lists of modules for test_causes.py: planted ones are wrong under checkpointing, each for one cause; sound ones
compute the same, though a naive look accuses them."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

PLANTED: list[tuple[str, Callable[[], Any]]] = []
"""The cause, and what makes the module."""
SOUND: list[Callable[[], Any]] = []
"""What makes each module."""
ONLY_NON_REENTRANT: set[str] = set()
"""Sound modules that are so under use_reentrant=False alone."""
INPUTS: dict[str, Callable[[], tuple[tuple[Any, ...], dict[str, Any]]]] = {}
"""By the name of what makes a module, arguments other than one tensor of 3 x 4."""


class Inner(nn.Module):
    """A linear layer, for what happens beside it."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.inner = nn.Linear(width, width)


def linear() -> nn.Module:
    return nn.Linear(4, 4)


def given(*args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return args, kwargs


def arguments_of(make: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    torch.manual_seed(0)
    return INPUTS.get(make.__name__, lambda: given(torch.randn(3, 4)))()


def maker(made: Any, takes: Any, base: type[nn.Module] = Inner, **held: Any) -> Any:
    """`made` itself where it is a class or a function without arguments. Else it is the forward of a subclass of `base`
    that holds `held`: values, or functions that make them."""
    if takes:
        INPUTS[made.__name__] = takes
    if isinstance(made, type) or not made.__code__.co_argcount:
        return made
    kind = type(made.__name__, (base,), {"forward": made, "__module__": made.__module__})

    # An __init__() that closes over `held` would be part of what is judged.
    def make() -> nn.Module:
        module = kind()
        for name, value in held.items():
            setattr(module, name, value() if callable(value) else value)
        return module

    make.__name__ = made.__name__
    return make


def planted(cause: str, takes: Any = None, **holds: Any) -> Callable[[Any], Any]:
    """Adds a class of modules, a function that makes one, or a forward as maker() takes it."""

    def add(made: Any) -> Any:
        PLANTED.append((cause, maker(made, takes, **holds)))
        return PLANTED[-1][1]

    return add


def sound(takes: Any = None, *, reentrant: bool = True, **holds: Any) -> Callable[[Any], Any]:
    def add(made: Any) -> Any:
        SOUND.append(maker(made, takes, **holds))
        if not reentrant:
            ONLY_NON_REENTRANT.add(made.__name__)
        return SOUND[-1]

    return add


def plant(table: dict[str, Any], **holds: Any) -> None:
    """Adds what one expression computes or makes, by `cause:name`."""
    for key, made in table.items():
        cause, made.__name__ = key.split(":")
        planted(cause, **holds)(made)


def add_sound(table: dict[str, Any]) -> None:
    for name, made in table.items():
        made.__name__ = name
        sound()(made)


def then(function: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    """A forward that computes a function of what `inner` returns."""
    return lambda self, x: function(self.inner(x))


def causes(verdict: Any) -> list[str]:
    return [finding.cause.name for finding in verdict.findings]


def planted_as(name: str) -> Any:
    return next(make for _, make in PLANTED if make.__name__ == name)
