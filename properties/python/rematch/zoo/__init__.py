"""Builds small random models of the architectures of libraries, from their configurations: nothing is downloaded."""

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import Any, NamedTuple

LIBRARIES = ("transformers", "timm", "torchvision", "diffusers")
"""Each has a module `LIBRARY_models` with names() and build(name)."""


class Built(NamedTuple):
    """A model in training mode, a batch, and a function that makes a loss of the result; None: any sum of it."""

    model: Any
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    loss: Callable[[Any], Any] | None


class NotBuilt(Exception):
    """An architecture could not be built; the text says why in one sentence."""


def names(library: str) -> list[str]:
    """Returns the names of a library's models. Raises ImportError if it is not installed, KeyError for another word."""
    return list(_module(library).names())


def build(place: str) -> Built:
    """Builds the architecture that `library:name` names, such as transformers:LlamaForCausalLM, the same at every call.

    Raises NotBuilt, or ImportError if the library is not installed.
    """
    library, _, name = place.partition(":")
    if lacks := missing(place):
        raise NotBuilt(lacks)
    import torch

    torch.manual_seed(0)
    return Built(*_module(library).build(name))


def missing(place: str) -> str:
    """Returns a sentence if the library has no such architecture, with what may be meant, else "". Raises ImportError
    if the library is not installed."""
    library, _, name = place.partition(":")
    if _module(library).has(name):
        return ""
    near = get_close_matches(name, names(library), 1)
    return f"{library} has no model {name}" + (f"; did you mean {near[0]}?" if near else "")


def knows(place: str) -> bool:
    """Whether `place` begins with the name of a library, so that build() takes it: not `package.module:function`."""
    return place.partition(":")[0] in LIBRARIES


def _module(library: str) -> Any:
    if library not in LIBRARIES:
        raise KeyError(f"one of {', '.join(LIBRARIES)} expected, got {library}")
    return import_module(f"rematch.zoo.{library}_models")
