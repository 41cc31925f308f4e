"""Layers of PyTorch's own databases, which come with it: every class of torch.nn, and every operator that
has a gradient, with its samples, as text. `python -m rematch.frameworks.pytorch.databases` prints them as
JSON, and why others are not among them; library.py keeps that."""

import inspect
import json
import math
import random
import re
import sys
import types
import unittest
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rematch.frameworks.pytorch.custom import CustomLayer, Instance, state_of, to_one
from rematch.frameworks.pytorch.library import SETUP
from rematch.subjects.library import SHAPES

FIT, GRID = "fit(x{shape})", "grid(x{shape})"
IN_UNIT, ABOVE_ONE = "fit(x{shape}).sigmoid()", "(fit(x{shape}).tanh() + 2.5)"
REGULAR = "(fit(x{shape}).tanh() + 4 * torch.eye({n}, dtype=x.dtype))"
OPERANDS = ((FIT, GRID), (IN_UNIT, GRID), (ABOVE_ONE, GRID), (FIT, FIT), (IN_UNIT, IN_UNIT), (REGULAR, REGULAR))
"""What takes the place of a sample's first tensor that requires a gradient, and of the others."""
WRITTEN_OUT = 128
"""How many numbers are written out."""
MOST = 4096
"""How many numbers a tensor may have."""
PER_CLASS, PER_OPERATOR = 12, 2
"""How many samples of a class, and of an operator, are kept."""


class NotTried(Exception):
    """Says why."""


class Writer:
    """Writes values as expressions. `made`: how modules were made that are arguments of others."""

    def __init__(self, made: dict[int, tuple[type, Any, Any]], first: str = GRID, others: str = GRID) -> None:
        self._made, self._templates = made, [first, others]

    def call(self, name: str, function: Callable[..., Any] | None, args: Any, kwargs: dict[str, Any]) -> str:
        """A call; keyword arguments that have their default are left out."""
        defaults = {}
        if function is not None:
            try:
                defaults = {n: p.default for n, p in inspect.signature(function).parameters.items()}
            except (ValueError, TypeError):
                pass
        words = [self.text(a) for a in args]
        for n, value in kwargs.items():
            default = defaults.get(n, inspect.Parameter.empty)
            if type(default) is not type(value) or isinstance(value, Tensor) or default != value:
                words.append(f"{n}={self.text(value)}")
        return f"{name}({', '.join(words)})"

    def text(self, value: Any) -> str:
        if isinstance(value, Tensor):
            return self._tensor(value)
        if isinstance(value, nn.Module):
            if id(value) not in self._made:
                raise NotTried("an argument is a module of its own")
            kind, args, kwargs = self._made[id(value)]
            return self.call(f"nn.{kind.__name__}", kind, args, kwargs)
        if isinstance(value, dict):
            return "{" + ", ".join(f"{k!r}: {self.text(v)}" for k, v in value.items()) + "}"
        if isinstance(value, (list, tuple)):
            words = ", ".join(map(self.text, value))
            return f"[{words}]" if isinstance(value, list) else f"({words}{',' * (len(value) == 1)})"
        if isinstance(value, type) and getattr(nn, value.__name__, None) is value:
            return f"nn.{value.__name__}"
        name = getattr(value, "__name__", "")
        if callable(value) and name and name != "<lambda>":
            for home, module in (("F", F), ("torch", torch)):
                if getattr(module, name, None) is value:
                    return f"{home}.{name}"
        if isinstance(value, float) and not math.isfinite(value):
            return f"float('{value}')"
        if isinstance(value, slice) or value is Ellipsis or value is None:
            return repr(value)
        if isinstance(value, (bool, int, float, complex, str, torch.dtype, torch.memory_format, torch.layout)):
            return repr(value)
        raise NotTried(f"an argument is a {type(value).__name__}")

    def _tensor(self, t: Tensor) -> str:
        if t.layout is not torch.strided or t.is_complex() or getattr(t, "is_nested", False):
            raise NotTried("an operand is sparse, nested or complex")
        if t.numel() == 0 or t.numel() > MOST:
            raise NotTried("an operand has no numbers, or many")
        if t.is_floating_point() and (t.requires_grad or t.numel() > WRITTEN_OUT):
            template = self._templates.pop(0) if len(self._templates) > 1 else self._templates[0]
            if template == REGULAR and (t.dim() < 2 or t.shape[-1] != t.shape[-2]):
                template = GRID
            shape = "".join(f", {extent}" for extent in t.shape)
            return template.format(shape=shape, n=t.shape[-1] if t.dim() else 1)
        if t.numel() > WRITTEN_OUT:
            raise NotTried("an operand has many whole numbers")
        if t.is_floating_point():
            values = re.sub(r"-?inf|nan", lambda f: f"float('{f[0]}')", str(_rounded(t.tolist())))
            return f"torch.tensor({values}, dtype=x.dtype)"
        dtype = "" if t.dtype in (torch.int64, torch.bool) else f", dtype={t.dtype}"
        return f"torch.tensor({t.tolist()}{dtype})"


def _rounded(values: Any) -> Any:
    return [_rounded(v) for v in values] if isinstance(values, list) else round(values, 2)


class FirstCall(torch.overrides.TorchFunctionMode):
    """Notes the first function of PyTorch's that is called, whatever lambda calls it."""

    called: tuple[Any, Any, Any] | None = None

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.called is None:
            self.called = function, args, kwargs or {}
        return function(*args, **(kwargs or {}))


def found(name: str) -> Any:
    try:
        return eval(name)
    except AttributeError:
        return None


def name_of(function: Any) -> str:
    if isinstance(function, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        return f"torch.ops.{function}"
    name = torch.overrides.resolve_name(function) or ""
    name = name.replace("torch.nn.functional.", "F.")
    if not re.match(r"(torch|F)\.[\w.]+$", name):
        raise NotTried("the operator has no name")
    return name


def outcome(
    layer: CustomLayer, x: Tensor, train: bool, grad: bool = True, frozen: bool = False, constant: bool = False
):
    """What a run shows, as bytes, and its parts."""
    torch.manual_seed(1)
    module = layer.module(x.shape).to(x.dtype).requires_grad_(not frozen)
    x, state, drawn = x.clone().requires_grad_(grad), to_one(state_of(module)).clone(), torch.get_rng_state()
    y = Instance(layer, module, constant).run(x, train)
    if y.shape != x.shape or y.dtype != x.dtype:
        raise NotTried(f"returns {y.dtype}")
    trains = [p for p in module.parameters() if p.requires_grad and not constant]
    if y.requires_grad != (torch.is_grad_enabled() and (grad or bool(trains))):
        raise NotTried("its result does not depend on its operand")
    if y.requires_grad:
        (y * torch.linspace(0.5, 1.5, y.numel(), dtype=y.dtype).reshape(y.shape)).sum().backward()
        if grad and x.grad is None or trains and all(p.grad is None for p in trains):
            raise NotTried("its result does not depend on its operand, or on no parameter")
    drew = not torch.equal(drawn, torch.get_rng_state())
    changed = not torch.equal(state, to_one(state_of(module)))
    found = [y.detach(), *(t.grad for t in (x, *module.parameters()) if t.grad is not None), to_one(state_of(module))]
    return found, bool(trains), drew, changed


def same(first: Sequence[Tensor], second: Sequence[Tensor]) -> bool:
    return [t.numpy().tobytes() for t in first] == [t.numpy().tobytes() for t in second]


def tried(layer: CustomLayer) -> str:
    """The traits of a layer that cases can have."""
    x = operand()
    first, parameters, drew, changed = outcome(layer, x, True)
    if not same(first, outcome(layer, x, True)[0]):
        raise NotTried("two equal runs differ")
    outcome(layer, x.float(), True)
    _, _, draws, changes = outcome(layer, x.float(), False)
    if draws or changes:
        raise NotTried("draws, or changes its state, in evaluation")
    with torch.no_grad():
        outcome(layer, x, False)
    outcome(layer, x[:1, :1], True, grad=False, frozen=True)
    outcome(layer, torch.zeros(3, 2, 2, 2), True)
    if parameters:
        outcome(layer, (3 * x).round(), True, grad=False)
        outcome(layer, x, True, constant=True)
    traits = {"parameters": parameters, "draws": drew, "state": changed}
    return ", ".join(name for name, holds in traits.items() if holds)


def operand() -> Tensor:
    return torch.randn(2, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def best(name: str, forms: Iterator[tuple[str, str]]) -> tuple[str, str, str, str]:
    """The name, the two expressions and the traits of the first form of a layer that has finite results
    and gradients that are not all zero; or of one whose gradients are."""
    reason, kept = "", []

    def whole(make: str, call: str) -> tuple[str, str, str, str]:
        try:
            return name, make, call, tried(layer_of(name, make, call))
        except NotTried as error:
            if "in evaluation" not in str(error):
                raise
        call = f"({call} if m.training else x + 0)"
        return name, make, call, tried(layer_of(name, make, call))

    for make, call in forms:
        call = f"fit({call}, *x.shape)"
        try:
            results = outcome(layer_of(name, make, call), operand(), True)[0]
            if not all(t.isfinite().all() for t in results):
                raise NotTried("its results are not finite")
            if results[1].any():
                return whole(make, call)
            kept.append((make, call))
        except Exception as error:
            reason = reason or sentence(error)
    for make, call in kept[:1]:
        try:
            return whole(make, call)
        except Exception as error:
            reason = sentence(error)
    raise NotTried(reason)


def layer_of(name: str, make: str, call: str) -> CustomLayer:
    return CustomLayer(name, SHAPES, make, call, setup=SETUP, traits="")


def sentence(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0][:160]


def spread(items: list[Any], most: int) -> list[Any]:
    return random.Random(0).sample(items, min(len(items), most))


def batched(value: Any, first: bool) -> Any:
    """Two of them, along the first or the second dimension."""
    if isinstance(value, tuple):
        return tuple(batched(v, first) for v in value)
    return torch.stack([value, value], 0 if first else 1)


def batched_mask(mask: Tensor) -> Tensor:
    """Of padding, of attention, or of attention for each head of each sample."""
    return torch.stack([mask, mask]) if mask.dim() == 1 else mask if mask.dim() == 2 else torch.cat([mask, mask])


def seed(number: int) -> None:
    torch.manual_seed(number)
    random.seed(number)
    numpy.random.seed(number)


class Samples:
    """All that can be tried."""

    def __init__(self) -> None:
        self.layers: list[tuple[str, str, str, str]] = []
        self.not_tried: dict[str, str] = {}
        self.made: dict[int, tuple[type, Any, Any]] = {}
        self._alive: list[nn.Module] = []

    def collect(self, name: str, most: int, samples: Iterator[Iterator[tuple[str, str]]]) -> None:
        """Keeps some samples, each in the first form that works."""
        reason, kept = "", {}
        try:
            for forms in samples:
                try:
                    layer = best(f"{name}.{len(kept)}", forms)
                    kept.setdefault(layer[1:], layer)
                except NotTried as error:
                    reason = reason or str(error)
                if len(kept) == most:
                    break
        except Exception as error:
            reason = reason or sentence(error)
        self.layers += kept.values()
        if not kept:
            self.not_tried[name] = reason or "has no samples"

    def note_how_modules_are_made(self) -> None:
        for kind in classes():
            self._note(kind)

    def _note(self, kind: type[nn.Module]) -> None:
        plain, samples = kind.__init__, self

        def noted(module: nn.Module, *args: Any, **kwargs: Any) -> None:
            if type(module) is kind and id(module) not in samples.made:
                samples.made[id(module)] = kind, args, kwargs
                samples._alive.append(module)
            plain(module, *args, **kwargs)

        noted.__signature__ = inspect.signature(plain)  # type: ignore[attr-defined]
        kind.__init__ = noted  # type: ignore[method-assign]

    def modules(self, database: Any) -> None:
        known = {info.module_cls: info for info in database}
        for kind in classes():
            name = f"nn.{kind.__name__}"
            samples = self._of_database(known[kind]) if kind in known else self._by_signature(kind)
            self.collect(name, PER_CLASS, samples)

    def _of_database(self, info: Any) -> Iterator[Iterator[tuple[str, str]]]:
        samples = []
        for train in (True, False) if info.train_and_eval_differ else (True,):
            seed(0)
            samples += info.module_inputs_func(info, "cpu", torch.float32, True, train)
        kind, choose = info.module_cls, random.Random(0)
        takes = inspect.signature(kind).parameters
        for sample in spread(samples, 2 * PER_CLASS):
            made, given = sample.constructor_input, sample.forward_input
            kwargs, args, named = made.kwargs, given.args, given.kwargs
            if "dropout" in takes and len(made.args) < 2 and choose.random() < 0.5:
                kwargs = kwargs | {"dropout": 0.25}
            # Samples with masks, and those of recurrent layers, come without a batch.
            if "batch_first" in kwargs and args[0].dim() == 2 and choose.random() < 0.7:
                first = kwargs["batch_first"]
                args = [batched(t, first and (k == 0 or not issubclass(kind, nn.RNNBase))) for k, t in enumerate(args)]
                named = {n: mask if mask is None else batched_mask(mask) for n, mask in named.items()}
            yield self._forms(kind, made.args, kwargs, args, named)

    def _forms(self, kind: Any, args: Any, kwargs: Any, given: Any, named: Any) -> Iterator[tuple[str, str]]:
        for first, others in ((FIT, FIT), *OPERANDS):
            make = Writer(self.made).call(f"nn.{kind.__name__}", kind, args, kwargs).replace(", dtype=x.dtype", "")
            yield make, Writer(self.made, first, others).call("m", kind.forward, given, named)
        # Its operand is no number, or may not be any: what it makes is added.
        call = Writer(self.made).call("m", kind.forward, given, named)
        yield make, f"floats(x) + [fit({call}, *x.shape).flatten()]"

    def _by_signature(self, kind: type[nn.Module]) -> Iterator[Iterator[tuple[str, str]]]:
        required = [
            p.name
            for p in list(inspect.signature(kind).parameters.values())
            if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        ]
        operands = [
            p
            for p in list(inspect.signature(kind.forward).parameters.values())[1:]
            if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        ]
        if not operands:
            raise NotTried("cannot be called")
        args = {n: VALUES.get(n, 4) for n in required}
        args = {n: value() if callable(value) else value for n, value in args.items()}
        for more in ({}, {"scale_factor": 2}) if "scale_factor" in inspect.signature(kind).parameters else ({},):
            for shape in ((2, 4), (2, 4, 4), (2, 4, 4, 4), (2, 4, 4, 4, 4)):
                given = [torch.zeros(shape, requires_grad=True) for _ in operands]
                yield self._forms(kind, (), args | more, given, {})
        for given in ([torch.zeros(2, 4, requires_grad=True), torch.ones(2).long()], [torch.ones(2, 2).long()]):
            yield self._forms(kind, (), args, given, {})

    def operators(self, database: Any) -> None:
        names: dict[str, list[Any]] = {}
        for info in database:
            names.setdefault(info.name, []).append(info)
        for name, variants in names.items():
            full = name if name.startswith("torch.") else f"torch.{name}"
            variants = [v for v in variants if v.supports_autograd]
            if not variants:
                self.not_tried[full] = "has no gradient"
                continue
            self.collect(full, PER_OPERATOR, self._of_operator(variants))

    def _of_operator(self, variants: Sequence[Any]) -> Iterator[Iterator[tuple[str, str]]]:
        for info in variants:
            seed(0)
            samples = [s for s, _ in zip(info.sample_inputs("cpu", torch.float32, requires_grad=True), range(40))]
            for sample in spread(samples, 12):
                yield self._calls(info, sample)

    def _calls(self, info: Any, sample: Any) -> Iterator[tuple[str, str]]:
        function, args, kwargs = info.op, (sample.input, *sample.args), sample.kwargs
        name = f"torch.{info.name}".replace("torch.nn.functional.", "F.")
        if found(name) is not function:
            mode = FirstCall()
            with mode:
                info.op(*args, **kwargs)
            if mode.called is None:
                raise NotTried("calls no function of PyTorch's")
            function, args, kwargs = mode.called
            name = name_of(function)
        for first, others in OPERANDS:
            yield "nn.Identity()", Writer(self.made, first, others).call(name, function, args, kwargs)


VALUES = {
    **{"kernel_size": 2, "groups": 2, "upscale_factor": 2, "downscale_factor": 2, "num_layers": 1, "dim": 1},
    **{"unflattened_size": (2, 2), "output_size": (3, 3), "cutoffs": [2], "size": 2},
    **{"decoder_layer": lambda: nn.TransformerDecoderLayer(4, 2, 8)},
}
"""Arguments by their names, of classes without samples; others are 4."""


def classes() -> list[type[nn.Module]]:
    found = {kind for kind in vars(nn).values() if inspect.isclass(kind) and issubclass(kind, nn.Module)}
    return sorted(found, key=lambda kind: kind.__name__)


def main() -> None:
    # The databases want it for tests that they do not run here.
    expected = types.ModuleType("expecttest")
    expected.TestCase, expected.assert_expected_inline = unittest.TestCase, None  # type: ignore[attr-defined]
    sys.modules.setdefault("expecttest", expected)
    from torch.testing._internal.common_methods_invocations import op_db
    from torch.testing._internal.common_modules import module_db

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    samples = Samples()
    samples.note_how_modules_are_made()
    samples.modules(module_db)
    samples.operators(op_db)
    print(json.dumps({"layers": samples.layers, "not tried": samples.not_tried}))


if __name__ == "__main__":
    main()
