"""Layers of the subject's own: modules that the harness puts among the layers of its models."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import CodeType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rematch.frameworks.pytorch.layers import Dense
from rematch.subjects.adapter_layers import extents, sample, written
from rematch.subjects.protocol import Request, Unsupported

_NAMES = {"torch": torch, "nn": nn, "F": F}


@dataclass(frozen=True)
class CustomLayer:
    """A module for random models.

    `shapes` says what it maps to what, "N C -> N 2C": letters stand for extents, the first one is
    the batch, "2C" is an even extent. `make` makes the module; it is called with the letters as
    keywords (`make(C=3)`), or is an expression of them ("nn.GRU(C, C)"). `call` runs it, if not by
    `m(x)`: an expression of the module `m` and its operand `x`. `elsewhere`: it draws from another
    generator than PyTorch's default one.

    An expression may use `torch`, `nn`, `F` and what `setup`, some lines of Python, defines; layers
    that are made of expressions can be part of exported scripts.
    """

    name: str
    shapes: str
    make: str | Callable[..., nn.Module]
    call: str | Callable[[nn.Module, Tensor], Tensor] = "m(x)"
    elsewhere: bool = False
    setup: str = ""
    traits: str | None = None
    """What it declares beside its shapes, where that is known."""
    _scope: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def names(self) -> dict[str, Any]:
        if not self._scope:
            self._scope.update(_NAMES)
            exec(self.setup, self._scope)
        return self._scope

    @cached_property
    def _calling(self) -> CodeType:
        return compile(str(self.call), f"<{self.name}>", "eval")

    def module(self, operand: Iterable[int]) -> nn.Module:
        """A new module for an operand of that shape. Raises ValueError where it takes none such."""
        extents = self.extents(operand)
        if callable(self.make):
            return self.make(**extents)
        return eval(self.make, {**self.names, **extents})

    def made_for(self, operand: Iterable[int]) -> str:
        """`make` with numbers for letters, for an operand of that shape."""
        return written(str(self.make), self.extents(operand))

    def run(self, module: nn.Module, x: Tensor) -> Tensor:
        if callable(self.call):
            return self.call(module, x)
        return eval(self._calling, self.names, {"m": module, "x": x})

    def extents(self, operand: Iterable[int]) -> dict[str, int]:
        """Extents that the letters stand for with an operand of that shape, without the batch."""
        try:
            meant = extents(self.shapes, list(operand))
        except ValueError as error:
            raise ValueError(f"{self.name} {error}") from None
        return {letter: meant[letter] for letter in list(meant)[1:]}

    @cached_property
    def declaration(self) -> str:
        """The declaration for the harness, in the form of PROTOCOL.md. A sample of the layer shows whether the layer
        has parameters, draws random numbers or changes its state."""
        if self.traits is not None:
            return f"{self.name}: {self.shapes}" + (f"; {self.traits}" if self.traits else "")
        shape = sample(self.shapes)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            module = self.module(shape)
            before = to_one(state_of(module)).clone()
            x = torch.randn(shape)
            random = torch.get_rng_state()
            self.run(module.train(), x)
            draws = not torch.equal(random, torch.get_rng_state())
            changed = not torch.equal(before, to_one(state_of(module)))
        traits = {
            "parameters": any(True for _ in module.parameters()),
            "draws elsewhere": self.elsewhere,
            "draws": draws and not self.elsewhere,
            "state": changed,
        }
        noted = ", ".join(name for name, holds in traits.items() if holds)
        return f"{self.name}: {self.shapes}" + (f"; {noted}" if noted else "")


def state_of(module: nn.Module) -> list[Tensor]:
    """State that a forward of the module may change beside parameters: its buffers, and the numbers and
    tensors among its plain attributes, each as numbers."""
    return list(named_state(module).values())


_MODES = ("training", "gradient_checkpointing")
"""Attributes that are no state: they say how a module is to run."""


def named_state(module: nn.Module) -> dict[str, Tensor]:
    """The same, by where in the module it is."""
    found = {name: b.detach().double().reshape(-1) for name, b in module.named_buffers()}
    for path, part in module.named_modules():
        for name, value in vars(part).items():
            if name.startswith("_") or name in _MODES:
                continue
            name = f"{path}.{name}" if path else name
            if isinstance(value, Tensor):
                found[name] = value.detach().double().reshape(-1)
            elif isinstance(value, (int, float)):
                found[name] = torch.tensor([float(value)], dtype=torch.float64)
    return found


def to_one(parts: Iterable[Tensor | None]) -> Tensor:
    """All elements, one tensor after the other."""
    flat = [part.detach().reshape(-1) for part in parts if part is not None]
    return torch.cat(flat) if flat else torch.zeros(0)


@dataclass
class Instance:
    """A custom layer of one model."""

    layer: CustomLayer
    module: nn.Module
    detached: bool = False
    """Its parameters take part as constants."""

    def run(self, x: Tensor, train: bool) -> Tensor:
        if self.module.training != train:
            self.module.train(train)
        # Several operators may read x. By another name for it their gradients are added up here in
        # every run, and not here or at the border of a segment.
        x = Dense.apply(x)
        y = self._run_detached(x) if self.detached else self.layer.run(self.module, x)
        # All that the harness knows of it is that it makes a new value, and of what size.
        storage = y.untyped_storage()
        is_new = storage._cdata != x.untyped_storage()._cdata and storage.nbytes() == y.nbytes
        return y if is_new else y.clone(memory_format=torch.contiguous_format)

    def _run_detached(self, x: Tensor) -> Tensor:
        class Call(nn.Module):
            def __init__(self, module: nn.Module) -> None:
                super().__init__()
                self.m = module

            def forward(inner, x: Tensor) -> Tensor:  # noqa: N805
                return self.layer.run(inner.m, x)

        # As they are now: where they are sharded, they are other tensors while the model runs.
        constants = {f"m.{name}": p.detach() for name, p in self.module.named_parameters()}
        return torch.func.functional_call(Call(self.module), constants, (x,))


def instances_of(request: Request, known: Mapping[str, CustomLayer]) -> dict[int, Instance]:
    """The custom layers of a case, by their numbers, new and with weights that depend on the case's
    seed alone."""
    made: dict[int, Instance] = {}
    case = request.case
    for index, operand in request.model.custom_operands:
        layer = case.layers[index]
        own = known.get(layer.layer)
        if own is None:
            raise Unsupported(f"layer {index}: no such layer is declared: {layer.layer}")
        torch.manual_seed((case.seed + index) % 2**63)
        module = own.module(operand).to(getattr(torch, case.dtype)).requires_grad_(not layer.frozen)
        made[index] = Instance(own, module, index in request.detached_layers)
    return made
