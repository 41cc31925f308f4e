"""Small random models of the architectures of libraries, from their configurations: nothing is downloaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import Any, NamedTuple

LIBRARIES = ("transformers", "timm", "torchvision", "diffusers")
"""Each has a module `LIBRARY_models` with names() and build(name)."""


class Built(NamedTuple):
    """A model in training mode, with a batch, and what makes a scalar of what it returns; None: any sum of it."""

    model: Any
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    loss: Callable[[Any], Any] | None


class NotBuilt(Exception):
    """Says in one sentence why an architecture could not be built."""


def names(library: str) -> list[str]:
    """The architectures of a library. Raises ImportError where it is not installed, KeyError for another word."""
    return list(_module(library).names())


def build(place: str) -> Built:
    """The architecture that `library:name` names, such as transformers:LlamaForCausalLM, the same at every call.

    Raises NotBuilt, or ImportError where the library is not installed.
    """
    library, _, name = place.partition(":")
    if lacks := missing(place):
        raise NotBuilt(lacks)
    import torch

    torch.manual_seed(0)
    return Built(*_module(library).build(name))


def missing(place: str) -> str:
    """Says that the library has no such architecture, and what may be meant; "" where it has. Raises ImportError where
    it is not installed."""
    library, _, name = place.partition(":")
    if _module(library).has(name):
        return ""
    near = get_close_matches(name, names(library), 1)
    return f"{library} has no model {name}" + (f"; did you mean {near[0]}?" if near else "")


def knows(place: str) -> bool:
    """Whether build() is meant: `package.module:function` names something else."""
    return place.partition(":")[0] in LIBRARIES


def _module(library: str) -> Any:
    if library not in LIBRARIES:
        raise KeyError(f"one of {', '.join(LIBRARIES)} expected, got {library}")
    return import_module(f"rematch.zoo.{library}_models")
