"""`rematch safe`: judges a module from the command line."""

from __future__ import annotations

import argparse
import ast
import json
import sys
from inspect import isroutine
from typing import TYPE_CHECKING, Any

from rematch.cli import parser_of, refuse, sentence
from rematch.loading import load, model_of

if TYPE_CHECKING:
    import torch

VARIANTS = ("reentrant", "non_reentrant")
EXAMPLE = """\
examples:
  rematch safe torch.nn:TransformerEncoderLayer --arg 32 --arg 4 --input 2x8x32
  rematch safe blocks.py:Decoder --arg 64 --input hidden_states=2x16x64 --json

Exit status 0: nothing differs; 1: something does; 2: it was not judged.
"""


def input_of(text: str) -> torch.Tensor:
    """Returns a tensor: normal numbers for "4x16", zeros and ones for "int:4x16". Raises ValueError, and RuntimeError
    for a tensor that PyTorch cannot make."""
    import torch

    kind, _, shape = text.rpartition(":")
    extents = [int(extent) for extent in shape.split("x")]
    if kind not in ("", "float", "int"):
        raise ValueError(kind)
    generator = torch.Generator().manual_seed(1)
    if kind == "int":
        return torch.randint(0, 2, extents, generator=generator)
    return torch.randn(extents, generator=generator)


def _argument(text: str) -> tuple[str, Any]:
    name, _, value = text.rpartition("=")
    try:
        return name, ast.literal_eval(value)
    except (SyntaxError, ValueError):
        return name, value


def add_module(parser: argparse.ArgumentParser, name: str) -> None:
    """Adds the arguments for the target and its inputs, which made() and inputs_of() read."""
    parser.add_argument("what", metavar=name, help="package.module:Class, or script.py:Class, or a function")
    parser.add_argument("--arg", action="append", default=[], help="an argument of the class: 32, or name=32")
    parser.add_argument(
        "--input", action="append", default=[], help="an input: 4x16, int:4x16 for integers, or name=4x16 by keyword"
    )


def _parser() -> argparse.ArgumentParser:
    says = "Says whether a module computes the same when it is checkpointed, why not, and what it saves."
    parser = parser_of("safe", says, EXAMPLE)
    add_module(parser, "MODULE")
    parser.add_argument(
        "--variant", choices=[*VARIANTS, "both"], default="both", help="variant of checkpoint() to try (both)"
    )
    parser.add_argument(
        "--model", action="store_true", help="judges a whole model, or one that a function returns with a batch"
    )
    parser.add_argument("--no-grad", action="store_true", help="judges forwards alone, under torch.no_grad()")
    parser.add_argument("--ignore", action="append", default=[], help='a difference to accept: "buffer *running*"')
    parser.add_argument("--seed", type=int, default=0, help="seed of the random state that each run begins with (0)")
    parser.add_argument("--verbose", action="store_true", help="prints lists in full")
    parser.add_argument("--json", action="store_true", help="prints the verdict as JSON")
    return parser


def main(arguments: list[str]) -> None:
    """Raises SystemExit: 1 if it is not safe, 2 for a wrong argument or a target that cannot be judged."""
    parser = _parser()
    given = parser.parse_args(arguments)
    inputs, kwargs = inputs_of(parser, given.input)
    if not inputs and not kwargs and not given.model:
        parser.error("--input is needed, once for each input of the module")
    from rematch.safe import judge, judge_model

    target = made(given.what, given.arg)
    if given.model:
        target, inputs, kwargs = with_batch(parser, given.what, target, inputs, kwargs)
    options: dict[str, Any] = {"kwargs": kwargs, "ignore": given.ignore, "seed": given.seed, "grad": not given.no_grad}
    options["progress"] = sys.stderr.isatty()
    if given.variant != "both":
        options["variants"] = given.variant
    try:
        verdict = (judge_model if given.model else judge)(target, *inputs, **options)
    except (RuntimeError, TypeError, ValueError) as error:
        refuse(given.what, str(error))
    print(json.dumps(verdict.to_json(), indent=2) if given.json else verdict.text(given.verbose))
    if not verdict.safe:
        raise SystemExit(1 if verdict.judged else 2)


def inputs_of(parser: argparse.ArgumentParser, texts: list[str]) -> tuple[list[torch.Tensor], dict[str, torch.Tensor]]:
    """Returns the inputs that --input asks for, positional ones and keywords. Ends the program for a wrong one."""
    inputs: list[torch.Tensor] = []
    kwargs: dict[str, torch.Tensor] = {}
    for text in texts:
        name, equals, shape = text.rpartition("=")
        try:
            tensor = input_of(shape)
        except ValueError:
            parser.error(f"--input: extents like 4x16, int:4x16 or name=4x16, expected, got {text}")
        except (MemoryError, RuntimeError, TypeError) as error:
            parser.error(f"--input {text}: {sentence(error)}")
        if equals:
            kwargs[name] = tensor
        else:
            inputs.append(tensor)
    return inputs, kwargs


def made(what: str, texts: list[str]) -> Any:
    """Loads what `what` names; a class is called with the arguments that --arg gives, `texts`."""
    try:
        target = load(what)
    except SystemExit as error:
        refuse(what, str(error))
    if not isinstance(target, type):
        return target
    import torch

    given = [_argument(text) for text in texts]
    torch.manual_seed(0)
    try:
        return target(*(value for name, value in given if not name), **{n: value for n, value in given if n})
    except TypeError as error:
        refuse(what, f"{error}; give its arguments with --arg")
    except Exception as error:
        refuse(what, f"it raises {type(error).__name__}: {sentence(error)}")


def with_batch(
    parser: argparse.ArgumentParser, what: str, model: Any, inputs: Any, kwargs: Any
) -> tuple[Any, Any, Any]:
    """Returns the model and its batch; a function is called, and returns them. Ends the program if there are none."""
    if isroutine(model):
        try:
            returned = model()
        except Exception as error:
            refuse(what, f"it raises {type(error).__name__}: {sentence(error)}")
        try:
            model, args, keywords = model_of(what, returned)
        except SystemExit as error:
            parser.error(str(error))
        inputs, kwargs = args or inputs, keywords or kwargs
    from torch.nn import Module

    if not isinstance(model, Module):
        refuse(what, f"a module expected, or a function that returns one, got {type(model).__name__}")
    if not inputs and not kwargs:
        parser.error("--input is needed, once for each input of the model")
    return model, inputs, kwargs
