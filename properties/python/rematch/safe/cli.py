"""`python -m rematch safe`: judges a module from the command line."""

from __future__ import annotations

import argparse
import ast
import sys
from typing import Any

import torch

from rematch.safe import VARIANTS, judge

EXAMPLE = """\
example:
  python -m rematch safe torch.nn:TransformerEncoderLayer --arg 32 --arg 4 --input 2x8x32
"""


def input_of(text: str) -> torch.Tensor:
    """A tensor from "4x16": normal numbers, or "int:4x16": zeros and ones. Raises ValueError."""
    kind, _, shape = text.rpartition(":")
    extents = [int(extent) for extent in shape.split("x")]
    if kind not in ("", "float", "int"):
        raise ValueError(kind)
    generator = torch.Generator().manual_seed(1)
    if kind == "int":
        return torch.randint(0, 2, extents, generator=generator)
    return torch.randn(extents, generator=generator)


def _argument(text: str) -> tuple[str, Any]:
    name, equals, value = text.rpartition("=")
    try:
        return (name if equals else ""), ast.literal_eval(value)
    except (SyntaxError, ValueError):
        return (name if equals else ""), value


def main(arguments: list[str]) -> None:
    """Raises SystemExit: 0 safe, 1 not safe, with a report, 2 a wrong argument."""
    from rematch.place import load

    parser = argparse.ArgumentParser(
        prog="python -m rematch safe",
        description="Says whether a module computes the same when it is checkpointed.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("what", metavar="MODULE", help="package.module:Class or script.py:Class")
    parser.add_argument("--arg", action="append", default=[], help="an argument of the class: 32, or name=32")
    parser.add_argument("--input", action="append", default=[], help="an input: 4x16, or int:4x16 for integers")
    parser.add_argument("--variant", choices=[*VARIANTS, "both"], default="both")
    parser.add_argument("--json", action="store_true", help="prints the verdict as JSON")
    given = parser.parse_args(arguments)
    try:
        inputs = [input_of(text) for text in given.input]
    except ValueError:
        parser.error("--input: extents like 4x16, or int:4x16, expected")
    if not inputs:
        parser.error("--input is needed, once for each input of the module")
    made = [_argument(text) for text in given.arg]
    target = load(given.what)
    if isinstance(target, type):
        try:
            positional = [value for name, value in made if not name]
            torch.manual_seed(0)
            target = target(*positional, **{name: value for name, value in made if name})
        except TypeError as error:
            raise SystemExit(f"{given.what}: {error}; give its arguments with --arg") from None
    variants = None if given.variant == "both" else (given.variant,)
    try:
        verdict = judge(target, *inputs, variants=variants, progress=sys.stderr.isatty())
    except RuntimeError as error:
        raise SystemExit(f"{given.what}: {error}") from None
    print(verdict.json() if given.json else verdict)
    if not verdict.safe:
        raise SystemExit(1)
