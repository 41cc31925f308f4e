"""Modules that are wrong under checkpointing, each for one cause: what test_causes.py judges."""

from __future__ import annotations

import contextvars
import functools
import itertools
import os
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

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


@planted("batch-norm")
def batch_norm() -> Any:
    return nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))


@planted("instance-norm")
def instance_norm() -> Any:
    return nn.Sequential(nn.Unflatten(1, (2, 2)), nn.InstanceNorm1d(2, track_running_stats=True))


@planted("spectral-norm")
def spectral_norm() -> Any:
    return nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4))


@planted("spectral-norm")
def old_spectral_norm() -> Any:
    return nn.utils.spectral_norm(nn.Linear(4, 4))


@planted("buffer-counter")
class Counts(Inner):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        self.calls += 1
        return self.inner(x)


@planted("buffer-average")
class Average(Inner):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x):
        self.mean.lerp_(x.detach().mean(0), 0.1)
        return self.inner(x - self.mean)


@planted("buffer-cache")
class Grows(Inner):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("past", torch.zeros(1, 4))

    def forward(self, x):
        self.past = torch.cat([self.past, x.detach()])
        return self.inner(x) + self.past.mean(0)


@planted("parameter-written")
class Clamps(Inner):
    def forward(self, x):
        with torch.no_grad():
            self.inner.weight.mul_(0.9)
        return self.inner(x).tanh()


@planted("counter")
class PythonCounts(Inner):
    calls = 0

    def forward(self, x):
        self.calls += 1
        return self.inner(x)


@planted("counter")
class Schedules(Inner):
    def __init__(self) -> None:
        super().__init__()
        self.step = 0

    def forward(self, x):
        self.step += 1
        return (self.inner(x) * self.step).tanh()


@planted("flag")
class Alternates(nn.Module):
    turn = False

    def forward(self, x):
        self.turn = not self.turn
        return torch.tanh(torch.sin(x)) if self.turn else torch.exp(x)


@planted("collected-twice")
class Collects(Inner):
    def __init__(self) -> None:
        super().__init__()
        self.norms = []

    def forward(self, x):
        self.norms.append(float(x.norm()))
        return self.inner(x)


@planted("cache-filled")
class Remembers(Inner):
    def __init__(self) -> None:
        super().__init__()
        self.known = None

    def forward(self, x):
        if self.known is None:
            self.known = self.inner(x).detach().exp()
        return self.inner(x).tanh() * self.known


@planted("global-changed")
class UsesGlobal(nn.Module):
    def forward(self, x):
        SHARED["calls"] += 1
        return (x * SHARED["calls"]).tanh()


SHARED = {"calls": 0}


@planted("class-attribute")
class UsesClass(nn.Module):
    seen = 0

    def forward(self, x):
        type(self).seen += 1
        return (x * type(self).seen).tanh()


@planted("closure-changed")
def closure() -> Any:
    layer, calls = nn.Linear(4, 4), 0

    def forward(x):
        nonlocal calls
        calls += 1
        return (layer(x) * calls).tanh()

    return forward


@planted("tensor-attribute")
class KeepsTensor(Inner):
    def __init__(self) -> None:
        super().__init__()
        self.total = torch.zeros(4)

    def forward(self, x):
        self.total = self.total + x.detach().sum(0)
        return self.inner(x)


@planted("created-in-forward")
class Lazy(Inner):
    def forward(self, x):
        if not hasattr(self, "scale"):
            self.scale = "made"
            return self.inner(x).tanh()
        return self.inner(x).sin().tanh()


@planted("numpy-random")
class NumpyNoise(nn.Module):
    def forward(self, x):
        return torch.tanh(x * torch.from_numpy(np.random.rand(*x.shape).astype("float32")))


@planted("python-random")
class PythonNoise(nn.Module):
    def forward(self, x):
        return torch.tanh(x * random.random())


@planted("python-random")
class StochasticDepth(Inner):
    def forward(self, x):
        return x + self.inner(x) if random.random() < 0.9 else x * 1.0


@planted("own-generator")
class OwnGenerator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.generator = torch.Generator().manual_seed(1)

    def forward(self, x):
        return torch.sin(x * torch.rand(x.shape, generator=self.generator))


@planted("own-generator")
class OwnNumpy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.generator = np.random.default_rng(1)

    def forward(self, x):
        return torch.sin(x * float(self.generator.random()))


@planted("own-generator")
class OwnRandom(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.generator = random.Random(1)

    def forward(self, x):
        return torch.sin(x * self.generator.random())


@planted("argument-written")
class InPlace(nn.Module):
    def forward(self, x):
        return x.mul_(2).tanh()


@planted("argument-cache")
class Cache(Inner):
    def forward(self, x, past):
        past.append(self.inner(x).detach())
        return torch.stack(past).sum(0).tanh() * x


INPUTS["Cache"] = lambda: ((torch.randn(3, 4), [torch.ones(3, 4)]), {})


@planted("argument-cache")
class CacheByKey(Inner):
    def forward(self, x, past=None):
        past["keys"] = torch.cat([past["keys"], x.detach()]) if "keys" in past else x.detach()
        return self.inner(x) * past["keys"].sum(0).tanh()


INPUTS["CacheByKey"] = lambda: ((torch.randn(3, 4),), {"past": {}})


@planted("no-input-requires-grad")
def embedding() -> Any:
    return nn.Embedding(5, 3)


INPUTS["embedding"] = lambda: ((torch.tensor([1, 2, 4]),), {})


@planted("nested-output")
class ReturnsDict(Inner):
    def forward(self, x):
        return {"hidden": self.inner(x).tanh()}


@planted("nested-output")
class ReturnsMixed(Inner):
    def forward(self, x):
        y = self.inner(x)
        return y, {"aux": y.square().mean()}


@planted("nested-input")
class TakesDict(Inner):
    def forward(self, x, more):
        return self.inner(x) + more["bias"].sin()


INPUTS["TakesDict"] = lambda: ((torch.randn(3, 4), {"bias": torch.randn(3, 4, requires_grad=True)}), {})


@planted("side-output")
class AuxiliaryLoss(Inner):
    def forward(self, x):
        y = self.inner(x)
        self.loss = y.square().mean()
        return y


@planted("grad-mode")
class AsksGradMode(Inner):
    def forward(self, x):
        y = self.inner(x)
        return y.tanh() if torch.is_grad_enabled() else y.bfloat16().tanh().float()


@planted("fast-path")
def fast_path() -> Any:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    return layer.eval().half().float()


INPUTS["fast_path"] = lambda: ((torch.randn(2, 5, 8) * 100,), {})


@planted("context-closed")
def default_dtype() -> Any:
    layer = nn.Linear(4, 4)

    def block(x):
        return layer(x) * torch.full((4,), 0.1)

    def model(x):
        torch.set_default_dtype(torch.bfloat16)
        try:
            return checkpoint(block, x, use_reentrant=False)
        finally:
            torch.set_default_dtype(torch.float32)

    return model


@planted("rng-not-preserved")
def not_preserved() -> Any:
    layer = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Tanh())
    return lambda x: checkpoint(layer, x, use_reentrant=False, preserve_rng_state=False)


@planted("mode-changed")
class EvalAfterwards(Inner):
    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        y = checkpoint(lambda z: self.drop(self.inner(z)).tanh(), x, use_reentrant=False)
        self.drop.eval()
        return y


@planted("environment")
class Environment(Inner):
    def forward(self, x):
        first = "REMATCH_TEST_TURN" not in os.environ
        os.environ["REMATCH_TEST_TURN"] = "1"
        return self.inner(x).tanh() if first else self.inner(x).sin().tanh()


@planted("saved-before-filled")
def rrelu() -> Any:
    return nn.Sequential(nn.Linear(4, 64), nn.RReLU())


@planted("closure-changed")
def late_binding() -> Any:
    layers = [nn.Linear(4, 4) for _ in range(3)]

    def model(x):
        for layer in layers:
            x = checkpoint(lambda y: layer(y).tanh(), x, use_reentrant=False)  # noqa: B023
        return x

    return model


@planted("attribute-changed")
class Names(Inner):
    def __init__(self) -> None:
        super().__init__()
        self.last = "a"

    def forward(self, x):
        self.last += "a"
        return self.inner(x)


@planted("iterator")
class Iterates(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scales = itertools.cycle([1.0, 2.0, 3.0])

    def forward(self, x):
        return (x * next(self.scales)).tanh()


VARIABLE: contextvars.ContextVar[int] = contextvars.ContextVar("turn", default=0)


@planted("global-changed")
class UsesVariable(nn.Module):
    def forward(self, x):
        VARIABLE.set(VARIABLE.get() + 1)
        return (x * VARIABLE.get()).tanh()


@planted("switch-changes-more")
class SwitchesPrefix(Inner):
    def __init__(self) -> None:
        super().__init__()
        self.gradient_checkpointing = True

    def forward(self, x):
        if self.gradient_checkpointing:
            return checkpoint(self.inner, x * 1.5, use_reentrant=False)
        return self.inner(x)


@planted("not-checkpointed")
class OnlyInTraining(Inner):
    def __init__(self) -> None:
        super().__init__()
        self.gradient_checkpointing = True

    def forward(self, x):
        if self.gradient_checkpointing and self.training:
            return checkpoint(self.inner, x, use_reentrant=False)
        return self.inner(x)


@planted("switch-drops-output")
class DropsCache(Inner):
    def __init__(self) -> None:
        super().__init__()
        self.gradient_checkpointing = True

    def forward(self, x):
        if self.gradient_checkpointing:
            return {"y": checkpoint(self.inner, x, use_reentrant=False)}
        return {"y": self.inner(x), "cache": x.detach() * 2}


@planted("observer")
def observer() -> Any:
    return nn.Sequential(torch.ao.quantization.FakeQuantize(), nn.Linear(4, 4))


class Session:
    """What a caller hands in."""

    name = ""


@planted("argument-changed")
class ChangesObject(Inner):
    def forward(self, x, session):
        session.name += "x"
        return self.inner(x)


INPUTS["ChangesObject"] = lambda: ((torch.randn(3, 4), Session()), {})


class Tagged(torch.Tensor):
    """Doubles every product that one of its kind takes part in."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        out = super().__torch_function__(func, types, args, kwargs or {})
        if func in (torch.mul, torch.Tensor.mul, torch.Tensor.__mul__):
            with torch._C.DisableTorchFunctionSubclass():
                out = (out + out).as_subclass(cls)
        return out


@planted("subclass")
class Multiplies(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor([1.0, -2.0]))

    def forward(self, x):
        return (x * self.w).sin()


INPUTS["Multiplies"] = lambda: ((torch.tensor([0.3, 0.5]).as_subclass(Tagged),), {})


@planted("kept-then-written")
def recurrent() -> Any:
    return nn.GRU(8, 4)


INPUTS["recurrent"] = lambda: ((torch.randn(2, 5, 8),), {})


@planted("random-state-moves")
def draws_in_vain() -> Any:
    layer = nn.Linear(4, 4)

    def block(x):
        torch.rand(3)
        return layer(x).tanh()

    return lambda x: checkpoint(block, x, use_reentrant=False, preserve_rng_state=False)


@planted("graph-shared")
class ClosesOverHidden(Inner):
    def forward(self, x):
        x = self.inner(x)
        hidden = x.exp()
        for _ in range(2):
            x = checkpoint(lambda y: (y * hidden).tanh(), x, use_reentrant=True)
        return x


@planted("grad-mode")
class HooksTensor(Inner):
    def forward(self, x):
        y = self.inner(x)
        y.register_hook(lambda gradient: gradient * 2)
        return y.tanh()


@planted("written-in-place")
class WritesAfterwards(Inner):
    def forward(self, x):
        x = self.inner(x)
        y = checkpoint(lambda z: z.tanh().exp(), x, use_reentrant=False)
        x.add_(1)
        return y


@planted("view-written")
class WritesToView(Inner):
    def forward(self, x):
        y = checkpoint(lambda z: z.view(-1), self.inner(x), use_reentrant=True)
        return y.mul_(2)


@planted("policy")
class KeepsWhatIsWritten(Inner):
    def forward(self, x):
        def policy(context, op, *args, **kwargs):
            return CheckpointPolicy.MUST_SAVE

        contexts = functools.partial(create_selective_checkpoint_contexts, policy)
        return checkpoint(lambda y: self.inner(y).sin().relu_(), x, use_reentrant=False, context_fn=contexts)


@planted("closure-changed")
class TakesFromList(Inner):
    def forward(self, x):
        scales = [3.0, 2.0]
        return checkpoint(lambda y: (self.inner(y) * scales.pop()).tanh(), x, use_reentrant=False)


@planted("detached-output")
class ReturnsDetached(Inner):
    def forward(self, x):
        y = self.inner(x)
        return y, y.detach().exp()


@planted("backward-within")
class Force(Inner):
    def forward(self, x):
        energy = self.inner(x).square().sum()
        (force,) = torch.autograd.grad(energy, x, create_graph=True)
        return force


@planted("flag")
class FreezesItself(Inner):
    def forward(self, x):
        y = self.inner(x).tanh()
        self.inner.requires_grad_(False)
        return y
