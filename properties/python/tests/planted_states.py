"""Modules whose states end as others under checkpointing, or decide what the recomputation does."""

from __future__ import annotations

import collections
import contextvars
import itertools
import os
import weakref
from typing import Any

import numpy as np
import torch
from planted import Inner, planted
from torch import nn
from torch.utils.checkpoint import checkpoint


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


@planted("observer")
def observer() -> Any:
    return nn.Sequential(torch.ao.quantization.FakeQuantize(), nn.Linear(4, 4))


@planted("random-state-moves")
def draws_in_vain() -> Any:
    layer = nn.Linear(4, 4)

    def block(x):
        torch.rand(3)
        return layer(x).tanh()

    return lambda x: checkpoint(block, x, use_reentrant=False, preserve_rng_state=False)


@planted("closure-changed")
class TakesFromList(Inner):
    def forward(self, x):
        scales = [3.0, 2.0]
        return checkpoint(lambda y: (self.inner(y) * scales.pop()).tanh(), x, use_reentrant=False)


@planted("flag")
class FreezesItself(Inner):
    def forward(self, x):
        y = self.inner(x).tanh()
        self.inner.requires_grad_(False)
        return y


@planted("carried-state")
class Carries(Inner):
    def __init__(self) -> None:
        super().__init__()
        self.hidden = None

    def forward(self, x):
        before = torch.zeros(3, 4) if self.hidden is None else self.hidden
        y = (self.inner(x) + before).tanh()
        self.hidden = y.detach()
        return y


@planted("global-changed")
class SetsSwitch(Inner):
    def forward(self, x):
        on = torch.are_deterministic_algorithms_enabled()
        torch.use_deterministic_algorithms(not on)
        return (self.inner(x) * (2.0 if on else 1.0)).tanh()


@planted("collected-twice")
class Recalls(Inner):
    """Begins with an empty memory, so that the recomputation computes more than its forward did."""

    def __init__(self) -> None:
        super().__init__()
        self.memory = collections.deque(maxlen=3)

    def forward(self, x):
        y = self.inner(x)
        y = y + sum(self.memory) if self.memory else y
        self.memory.append(y.detach())
        return y.tanh()


@planted("cache-filled")
class CachesByModule(Inner):
    """In a mapping that is no dict."""

    def __init__(self) -> None:
        super().__init__()
        self.known = weakref.WeakKeyDictionary()

    def forward(self, x):
        if self.inner not in self.known:
            self.known[self.inner] = self.inner(x).detach().exp()
        return self.inner(x).tanh() * self.known[self.inner]


NUMBERS = itertools.count(1)


@planted("iterator")
class TakesNumber(Inner):
    def forward(self, x):
        return (self.inner(x) / next(NUMBERS)).tanh()


@planted("created-in-forward")
class MakesModule(Inner):
    def __init__(self) -> None:
        super().__init__()
        self.head = None

    def forward(self, x):
        y = self.inner(x)
        if self.head is None:
            self.head = nn.Linear(4, 4)
            return y.sin()
        return self.head(y).tanh()


@planted("attribute-changed")
class Rotates(Inner):
    def __init__(self) -> None:
        super().__init__()
        self.scales = collections.deque([1.0, 2.0, 3.0])

    def forward(self, x):
        self.scales.rotate(1)
        return (self.inner(x) * self.scales[0]).tanh()


@planted("attribute-changed")
class KeepsArray(Inner):
    def __init__(self) -> None:
        super().__init__()
        self.mean = np.zeros(4, "float32")

    def forward(self, x):
        self.mean *= 0.9
        self.mean += 0.1
        return (self.inner(x) - torch.from_numpy(self.mean.copy())).tanh()
