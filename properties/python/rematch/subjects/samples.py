"""Finds the layers of a framework's library: every public class that can be made and called, with samples, as text.
`python -m rematch.subjects.samples NAME ...`, with the words that start the subject, prints them as JSON, and why other classes
are not among them; library.py keeps that."""

import inspect
import json
import random
import re
import sys
import typing
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import zip_longest
from typing import Any

import numpy as np

from rematch.subjects.adapter_layers import Module
from rematch.subjects.case import case_from_json, model_from_json
from rematch.subjects.framework import Framework
from rematch.subjects.library import SHAPES, Library
from rematch.subjects.protocol import Arrays, Request
from rematch.subjects.records import Record

VALUES = {
    **dict.fromkeys(("kernel_size", "pool_size", "size", "strides", "stride", "depth", "group_size"), "2"),
    **dict.fromkeys(("groups", "num_groups", "num_heads", "nhead", "target_shape", "output_size", "head_dim"), "2"),
    **dict.fromkeys(("num_layers", "padding", "cropping", "num_spatial_dims", "axis", "axes", "dim", "n"), "1"),
    **dict.fromkeys(("rate", "p", "stddev", "alpha"), "0.5"),
    **{"scale_factor": "2.0", "height": "3", "width": "3", "num_query_heads": "4", "num_key_value_heads": "2"},
}
"""What parameters without a default get by their names; others get 4, and masks None."""
OPTIONS = {
    **dict.fromkeys(("stride", "strides", "dilation", "dilation_rate", "groups", "num_groups", "num_layers"), "2"),
    **{"broadcast_dims": "(1,)"},
}
"""What those with a default are tried with beside it; switches are turned, and something is dropped."""
STATES = ("carry", "hidden", "states")
"""Operands that are an array, a pair of them, or a list."""


class NotTried(Exception):
    """Says why."""


class Noted(Record):
    """A record of which the arrays can be read."""

    def __init__(self) -> None:
        super().__init__()
        self.arrays: dict[tuple[str, int], np.ndarray] = {}
        self.states: set[bytes] = set()
        """States of the default random stream, where it is observed."""
        self.own: set[bytes] = set()
        """States of generators that the layer has, before and after."""

    def observe(self, quantity: str, array: Any, *, step: int = 0, **where: Any) -> None:
        if array is None:
            raise NotTried("a gradient is absent")
        self.arrays[quantity, step] = np.array(array)

    def stream(self, moment: str, state: bytes, *, stream: int = 0, **where: Any) -> None:
        if stream == 0:
            self.states.add(state)


def outcome(framework: Framework, layer: Module, seed: int = 7, train: bool = True, dtype: str = "float32") -> Noted:
    """Two equal steps of a model of that layer alone, whose weights depend on no seed."""
    framework.modules_by_declaration[layer.declaration] = layer
    own = {"kind": "custom", "layer": layer.declaration}
    protocol = {"input_requires_grad": True, "steps": 2, "learning_rate": 0.0, "train": train}
    case = case_from_json({"seed": 7, "dtype": dtype, "input": [2, 4], "layers": [own], "protocol": protocol})
    parts = {trait: [{"layer": 0, "role": "all"}] if trait in layer.traits else [] for trait in ("parameters", "state")}
    model = {"live": [[[-1, 0]], [[0, 0]]], "parameters": parts["parameters"], "buffers": parts["state"]}
    model |= {"layer_parameters": [[0] if parts["parameters"] else []]}
    model |= {"custom_operands": [{"layer": 0, "shape": [2, 4]}]}
    x, target = np.random.default_rng(0).standard_normal((2, 2, 4)).astype(dtype)
    empty = [np.zeros(0, dtype)]
    arrays = Arrays(empty * len(parts["parameters"]), empty * len(parts["state"]), [x, x], [target, target])
    record = Noted()
    try:
        run = framework.steps(Request(case, model_from_json(model), arrays), record)
        run.request = replace(run.request, case=replace(case, seed=seed))
        for go in (lambda: None, run.go):
            go()
            record.own.add(b"".join(framework.numpy(a).tobytes() for a in framework.generators(run.modules["m0"])))
    finally:
        framework.let_go()
        framework.put_back()
    if record.arrays["output", 0].shape != x.shape or record.arrays["output", 0].dtype != x.dtype:
        raise NotTried(f"returns {record.arrays['output', 0].dtype}")
    return record


def same(first: Noted, second: Noted) -> bool:
    return all(first.arrays[key].tobytes() == array.tobytes() for key, array in second.arrays.items())


def steps_differ(record: Noted, quantity: str) -> bool:
    return record.arrays[quantity, 0].tobytes() != record.arrays[quantity, 1].tobytes()


def moved(record: Noted, before: Sequence[np.ndarray]) -> bool:
    """Whether a step changed the state."""
    old = np.concatenate([a.reshape(-1) for a in before]).astype(np.float64).tobytes()
    return any(record.arrays["buffer", step].tobytes() != old for step in (0, 1))


def tried(framework: Framework, name: str, make: str, call: str) -> tuple[Module, bool]:
    """A layer with the traits that it shows, and whether its operand matters."""
    names = framework.names
    exec(framework.seed(7), names)
    module = eval(make, names)
    before = [np.array(framework.numpy(a)) for a in names["state_of"](module)]
    has = {"parameters": len(names["parameters_of"](module)) > 0, "state": bool(before)}

    def layer() -> Module:
        return Module(name, SHAPES, make, ", ".join(trait for trait, holds in has.items() if holds), call)

    first = outcome(framework, layer())
    if not all(np.isfinite(array).all() for array in first.arrays.values()):
        raise NotTried("its results are not finite")
    if not same(first, outcome(framework, layer())):
        raise NotTried("two equal runs differ")
    seeded = not same(first, outcome(framework, layer(), seed=8))
    drew = seeded or len(first.own) > 1 or steps_differ(first, "output")
    has["state"] = bool(before) and moved(first, before)
    has["draws"] = seeded and len(first.states) != 1
    has["draws elsewhere"] = drew and not has["draws"] and not has["state"]
    if drew or has["state"]:
        quiet = outcome(framework, layer(), train=False)
        if len(quiet.own) > 1 or steps_differ(quiet, "output") or has["state"] and moved(quiet, before):
            raise NotTried("draws, or changes its state, in evaluation")
    if "float64" in framework.features:
        outcome(framework, layer(), dtype="float64")
    return layer(), bool(first.arrays["input_gradient", 0].any())


def parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """The parameters of a method, without `self`."""
    return list(inspect.signature(function).parameters.values())[1:]


def required(parameter: inspect.Parameter) -> bool:
    return parameter.default is parameter.empty and parameter.kind not in (
        parameter.VAR_POSITIONAL,
        parameter.VAR_KEYWORD,
    )


def written(words: Sequence[tuple[inspect.Parameter, str]]) -> str:
    """Arguments: by position as long as none before them is left out."""
    plain = [required(p) and p.kind is not p.KEYWORD_ONLY or p.kind is p.VAR_POSITIONAL for p, _ in words]
    return ", ".join(text if by else f"{p.name}={text}" for (p, text), by in zip(words, plain, strict=True))


def options(parameter: inspect.Parameter) -> list[str]:
    """Other values of a parameter than its default."""
    name, default = parameter.name, parameter.default
    if isinstance(default, bool):
        return [str(not default)]
    if typing.get_origin(parameter.annotation) is typing.Literal:
        return [repr(value) for value in typing.get_args(parameter.annotation) if value != default]
    if isinstance(default, float) and "drop" in name:
        return ["0.25"]
    if name == "padding" and default in ("valid", "VALID", 0):
        return ["1" if default == 0 else "'same'"]
    return [OPTIONS[name]] if name in OPTIONS and default is not None else []


@dataclass
class Search:
    """Looks for layers of a library."""

    framework: Framework
    library: Library

    def makes(self, name: str, kind: type) -> list[str]:
        """Expressions of a class: with its defaults, and with another value for each of them."""
        given, more = [], []
        for p in parameters(kind.__init__):
            text = self.library.values.get(f"{kind.__name__}.{p.name}")
            if text is None and required(p):
                text = self.library.values.get(p.name, VALUES.get(p.name, "4"))
            if text is not None:
                given.append((p, text))
            elif p.kind is not p.VAR_POSITIONAL and p.kind is not p.VAR_KEYWORD:
                more += [(p, option) for option in [*self._more(p), *options(p)]]
        return [f"{name}({written(words)})" for words in [given, *([*given, pair] for pair in more)]]

    def _more(self, parameter: inspect.Parameter) -> list[str]:
        return [self.library.values[parameter.name]] if parameter.name in self.library.values else []

    def constant(self, expression: str) -> str:
        return self.framework.script_array.format(array=expression)

    def numbers(self, shape: Sequence[int]) -> str:
        size, shapes = int(np.prod(shape)), ", ".join(map(str, shape))
        return self.number(f"np.linspace(0.1, 0.9, {size}, dtype=np.float32).reshape({shapes})")

    def number(self, expression: str) -> str:
        return (self.library.number or self.framework.script_array).format(array=expression)

    def calls(
        self, kind: type, shape: Sequence[int], first: int, mask: tuple[str, str] = ("", "")
    ) -> Iterator[tuple[str, str]]:
        """Pairs of templates, of what makes a layer and of what calls it, for operands of that shape. `first`: how the
        first is written. `mask`: an argument and its name."""
        takes = parameters(getattr(kind, self.library.entry))
        numbers = self.numbers(shape)
        fitted = f"fit(x, {', '.join(map(str, shape))})"
        whole = self.constant(
            f"np.arange({int(np.prod(shape))}, dtype=np.int32).reshape({', '.join(map(str, shape))}) % 3"
        )
        given = [[fitted, f"[{fitted}, {numbers}]", whole][first]]
        operands = [p for p in takes if required(p) and p.name not in self.library.named]
        if not takes or not any(p.kind is not p.VAR_KEYWORD for p in takes):
            raise NotTried("cannot be called")
        named = "".join(f", {p.name}={self.library.named[p.name]}" for p in takes if p.name in self.library.named)
        states = any(p.name in STATES for p in operands)
        for rest in (f"({numbers}, {numbers})", f"[{numbers}]", numbers) if states else (numbers,):
            others = [rest if "mask" not in p.name else mask[1] if p.name == mask[0] else "None" for p in operands[1:]]
            arguments = ", ".join(given + others)
            if mask[0] and mask[1] not in others:
                arguments += f", {mask[0]}={mask[1]}"
            if operands and operands[0].name in STATES:
                arguments = ", ".join([rest, *given])
            for template in self.library.calls:
                call = template.replace("{given}", arguments).replace("{named}", named)
                make = self.library.make.replace("{given}", arguments)
                yield make, call if first < 2 else call.replace("fit(", "x + fit(", 1)

    def masks(self, kind: type, shape: Sequence[int]) -> list[tuple[str, str]]:
        """Masks among the arguments that a call of the class takes."""
        names = [p.name for p in parameters(getattr(kind, self.library.entry)) if p.name.endswith("mask")]
        length = shape[1] if len(shape) > 2 else shape[0]
        causal = self.constant(f"np.tril(np.ones(({length}, {length}), bool))")
        additive = self.number(f"np.triu(np.full(({length}, {length}), -1e9, np.float32), 1)")
        padding = self.constant(f"np.arange({length})[None] < np.array([[{length - 1}]] * {shape[0]})")
        return [(name, mask) for name in names for mask in (causal, padding, additive)]

    def of_class(self, name: str, kind: type) -> list[Module]:
        """The samples of a class. Raises NotTried if there are none."""
        found: dict[tuple[str, str], tuple[Module, bool]] = {}
        reason = ""

        def attempt(expression: str, shape: Sequence[int], first: int, mask: tuple[str, str] = ("", "")) -> bool:
            nonlocal reason
            for make, call in self.calls(kind, shape, first, mask):
                make = make.replace("{make}", expression)
                if (make, call) in found:
                    return True
                try:
                    found[make, call] = tried(self.framework, f"{name}.{len(found)}", make, call)
                    return True
                except Exception as error:
                    reason = reason or sentence(self.framework, error)
            return False

        base, *others = self.makes(name, kind)
        for first in range(3):
            bases = self.library.most // 2
            shapes = [shape for shape in self.library.shapes if len(found) < bases and attempt(base, shape, first)]
            if not shapes:
                continue
            masks = [(base, shape, mask) for shape in shapes for mask in self.masks(kind, shape)]
            turned = [(make, shapes[i % len(shapes)], ("", "")) for i, make in enumerate(others)]
            for tries in (masks, turned):
                random.Random(0).shuffle(tries)
            turned.sort(key=lambda one: "drop" not in one[0])
            tries = [one for pair in zip_longest(turned, masks) for one in pair if one]
            for make, shape, mask in tries:
                if len(found) < self.library.most:
                    attempt(make, shape, first, mask)
            break
        if not found:
            raise NotTried(reason or "no operands fit")
        matter = [module for module, matters in found.values() if matters]
        return matter or [next(iter(found.values()))[0]]


def sentence(framework: Framework, error: Exception) -> str:
    """The line of an error's message that says something."""
    text = re.sub(r"\x1b\[\d+m", "", framework.message(error))
    lines = [line.strip() for line in text.splitlines() if line.strip() and "Exception encountered when" not in line]
    return [*lines, type(error).__name__][0][:160]


def classes(library: Library, names: dict[str, Any]) -> dict[str, type]:
    """The public classes by expressions, each once: by its own name, where it has it there."""
    home, base = eval(library.home, names), eval(library.base, names)
    public = {name: kind for name, kind in vars(home).items() if inspect.isclass(kind) and not name.startswith("_")}
    found: dict[type, str] = {}
    for name, kind in sorted(public.items()):
        if issubclass(kind, base):
            found.setdefault(kind, kind.__name__ if public.get(kind.__name__) is kind else name)
    return {f"{library.home}.{name}": kind for kind, name in found.items()}


def main(words: Sequence[str]) -> None:
    warnings.simplefilter("ignore")
    Framework.searches = True
    framework = import_module(f"rematch.frameworks.{words[0]}.adapter").subject(list(words[1:]))
    layers, not_tried = [], {}
    for name, kind in classes(framework.library, framework.names).items():
        try:
            for m in Search(framework, framework.library).of_class(name, kind):
                layers.append((m.name, m.make, m.call, m.traits))
        except Exception as error:
            not_tried[name] = sentence(framework, error)
    print("\n" + json.dumps({"layers": layers, "not tried": not_tried}))


if __name__ == "__main__":
    main(sys.argv[1:])
