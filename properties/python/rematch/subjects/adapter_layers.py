"""Layers as adapters describe them: expressions for the kinds that the harness knows, and modules
of the framework's library."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rematch.subjects.case import Layer

Template = str | Callable[[Layer, bool], str]
"""An expression of `{x}`, the operand, and `{y}`, the second one; of the parameters `{weight}` and
`{bias}`; of the buffers `{running_mean}` and `{running_var}`; and of the layer's fields, such as
`{p}`. Where it depends on the layer, or on whether it trains, a function of both."""

OUTPUTS = {"split": 2, "duplicate": 2}
"""How many outputs kinds have that have not one."""

_EXTENT = re.compile(r"(\d*)([A-Z]?)$")


def extents(shapes: str, operand: Sequence[int]) -> dict[str, int]:
    """Extents that the letters of "N C -> N 2C" stand for with an operand of that shape."""
    words = shapes.partition("->")[0].split()
    if words[-1] == "...":
        return {words[0]: operand[0]}
    if len(words) != len(operand):
        raise ValueError(f"takes {' '.join(words)}, got {list(operand)}")
    meant: dict[str, int] = {}
    for word, extent in zip(words, operand, strict=True):
        factor, letter = _EXTENT.match(word).groups()  # type: ignore[union-attr]
        if letter:
            meant[letter] = extent // int(factor or 1)
    return meant


def written(expression: str, meant: dict[str, int]) -> str:
    """The expression with numbers for letters."""
    return re.sub(r"\b[A-Z]\b", lambda found: str(meant.get(found[0], found[0])), expression)


def sample(shapes: str) -> list[int]:
    """The shape of an operand whose letters are 4."""
    words = [_EXTENT.match(w).groups() for w in shapes.partition("->")[0].split()]  # type: ignore[union-attr]
    return [int(factor or 1) * (4 if letter else 1) for factor, letter in words]


@dataclass(frozen=True)
class Module:
    """A layer of the framework's library.

    `shapes` and `traits` are those of its declaration (PROTOCOL.md): "N C -> N 2C", "parameters,
    draws". `make` is an expression of the letters, `call` one of the module `m`, its operand `x`
    and its number in the model, `LAYER`.
    """

    name: str
    shapes: str
    make: str
    traits: str = ""
    call: str = "m(x)"

    @property
    def declaration(self) -> str:
        return f"{self.name}: {self.shapes}" + (f"; {self.traits}" if self.traits else "")

    def made_for(self, operand: Sequence[int]) -> str:
        """`make` with numbers for letters, for an operand of that shape."""
        return written(self.make, extents(self.shapes, operand))


def modules_of(table: str) -> tuple[Module, ...]:
    """Reads lines `name | shapes | traits | make | call`; without the last, the call is `m(x)`. A line that
    begins with `|` continues the one above."""
    lines = re.sub(r"\n\s*\|", " |", table).strip().splitlines()
    rows = [[word.strip() for word in line.split(" | ")] for line in lines]
    return tuple(Module(n, shapes, make, traits, *call) for n, shapes, traits, make, *call in rows)


def where_drawn(expression: str) -> Template:
    """A template: `expression` where the layer draws, else its operand."""
    return lambda layer, train: expression if train and layer.p else "{x}"
