"""The list of modules that are wrong under checkpointing, each for one cause: what test_causes.py judges."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

PLANTED: list[tuple[str, Callable[[], Any]]] = []
"""The cause, and what makes the module."""
INPUTS: dict[str, Callable[[], tuple[tuple[Any, ...], dict[str, Any]]]] = {}
"""By the name of what makes a module, arguments other than one tensor of 3 x 4."""


def planted(cause: str) -> Callable[[Any], Any]:
    def add(make: Any) -> Any:
        PLANTED.append((cause, make))
        return make

    return add


class Inner(nn.Module):
    """A linear layer, for what happens beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)
