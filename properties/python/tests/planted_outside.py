"""Modules that change what lies outside of them, or hangs on what they hold: generators, arguments, tags, hooks."""

from __future__ import annotations

import array
import collections
import functools
import random

import numpy as np
import torch
from planted import INPUTS, Inner, planted
from torch import nn


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


class Session:
    """What a caller hands in."""

    name = ""


@planted("argument-changed")
class ChangesObject(Inner):
    def forward(self, x, session):
        session.name += "x"
        return self.inner(x)


INPUTS["ChangesObject"] = lambda: ((torch.randn(3, 4), Session()), {})


@planted("argument-consumed")
class Pops(Inner):
    def forward(self, x, options):
        return (self.inner(x) * options.pop("scale", 1.0)).tanh()


INPUTS["Pops"] = lambda: ((torch.randn(3, 4), {"scale": 3.0}), {})


@planted("tag-changed")
class MarksMask(Inner):
    def forward(self, x, mask):
        first = not hasattr(mask, "prepared")
        mask.prepared = True
        return (self.inner(x) * mask).tanh() if first else (self.inner(x) * mask.exp()).tanh()


INPUTS["MarksMask"] = lambda: ((torch.randn(3, 4), torch.rand(3, 4)), {})


@planted("tag-lost")
class ReadsTag(Inner):
    def forward(self, x):
        return (self.inner(x) * getattr(x, "scale", 1.0)).tanh()


def tagged() -> torch.Tensor:
    x = torch.randn(3, 4)
    x.scale = 3.0  # type: ignore[attr-defined]
    return x


INPUTS["ReadsTag"] = lambda: ((tagged(),), {})


@planted("hook-in-forward")
class HooksEachTime(Inner):
    def forward(self, x):
        self.inner.register_forward_hook(lambda module, taken, y: y * 1.1)
        return self.inner(x).tanh()


@planted("hook-in-forward")
class HooksWeight(Inner):
    def forward(self, x):
        self.inner.weight.register_hook(lambda gradient: gradient * 2)
        return self.inner(x).tanh()


@planted("seed-in-forward")
class SeedsPython(Inner):
    def forward(self, x):
        random.seed(7)
        return (self.inner(x) * random.random()).tanh()


@planted("seed-in-forward")
class SeedsNumpy(Inner):
    def forward(self, x):
        np.random.seed(7)
        return (self.inner(x) * float(np.random.rand())).tanh()


@planted("early-stop")
class HooksForOneForward(Inner):
    """Takes its hook away when it is done, which the recomputation never is."""

    def forward(self, x):
        handle = self.inner.register_forward_hook(lambda module, taken, y: y + 1)
        y = self.inner(x).sin()
        handle.remove()
        return y


@planted("early-stop")
class PutsRandomBack(Inner):
    def forward(self, x):
        before = random.getstate()
        random.seed(3)
        y = (self.inner(x) * random.random()).sin()
        random.setstate(before)
        return y


@planted("early-stop")
class ExchangesWeights(Inner):
    """Computes with an average of its weights, and takes its own back."""

    def __init__(self) -> None:
        super().__init__()
        self.average = torch.randn(4, 4)

    def forward(self, x):
        own = self.inner.weight.data
        self.inner.weight.data = self.average
        y = self.inner(x).tanh()
        self.inner.weight.data = own
        return y


calls = 7


@planted("counter")
class CalledLikeAGlobal(Inner):
    """The code that names the attribute seems to name the global."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return self.inner(x)


@planted("attribute-changed")
class KeepsBytes(Inner):
    def __init__(self) -> None:
        super().__init__()
        self.scale = array.array("d", [1.0])

    def forward(self, x):
        self.scale[0] *= 1.5
        return (self.inner(x) * self.scale[0]).tanh()


@planted("collected-twice")
class KeepsAList(Inner):
    def __init__(self) -> None:
        super().__init__()
        self.seen = collections.UserList()

    def forward(self, x):
        self.seen.append(1)
        return self.inner(x)


@planted("counter")
class Sobol(Inner):
    """The first draw alone leaves the numbers as they are: that is no early stop."""

    def __init__(self) -> None:
        super().__init__()
        self.engine = torch.quasirandom.SobolEngine(4, scramble=True, seed=1)

    def forward(self, x):
        return (self.inner(x) * self.engine.draw(1)).tanh()


@planted("clock-or-entropy")
class SeedOfTheSystem(Inner):
    def forward(self, x):
        torch.seed()
        return nn.functional.dropout(self.inner(x), 0.5).tanh()


@planted("ragged-size")
class NestsWithin(Inner):
    def forward(self, x):
        rows = torch.nested.nested_tensor_from_jagged(x, torch.tensor([0, 1, 3]))
        return self.inner(rows).tanh().values()


@planted("cache-filled")
class TableOfAPolicy(Inner):
    """The table has no graph: only a policy misses the operators that made it."""

    def forward(self, x):
        cos, sin = _table(4)
        y = self.inner(x)
        p, q = y.chunk(2, -1)
        return self.inner(torch.cat([p * cos - q * sin, p * sin + q * cos], -1))


@functools.cache
def _table(width: int) -> tuple[torch.Tensor, torch.Tensor]:
    angles = torch.outer(torch.arange(3.0), 10000 ** -(torch.arange(0, width, 2) / width))
    return angles.cos(), angles.sin()
