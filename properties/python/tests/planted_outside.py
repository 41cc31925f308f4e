"""Modules that change what lies outside of them, or hangs on what they hold: generators, arguments, tags, hooks."""

import array
import collections
import functools
import random

import numpy as np
import torch
from modules import INPUTS, given, plant, planted
from torch import nn

plant(
    {
        "numpy-random:NumpyNoise": lambda self, x: torch.tanh(
            x * torch.from_numpy(np.random.rand(*x.shape).astype("float32"))
        ),
        "python-random:PythonNoise": lambda self, x: torch.tanh(x * random.random()),
        "argument-written:InPlace": lambda self, x: x.mul_(2).tanh(),
    },
    base=nn.Module,
)
plant(
    {
        "python-random:StochasticDepth": lambda self, x: x + self.inner(x) if random.random() < 0.9 else x * 1.0,
        "argument-consumed:Pops": lambda self, x, options: (self.inner(x) * options.pop("scale", 1.0)).tanh(),
        "tag-lost:ReadsTag": lambda self, x: (self.inner(x) * getattr(x, "scale", 1.0)).tanh(),
    }
)


def tagged() -> torch.Tensor:
    x = torch.randn(3, 4)
    x.scale = 3.0  # type: ignore[attr-defined]
    return x


INPUTS |= {"Pops": lambda: given(torch.randn(3, 4), {"scale": 3.0}), "ReadsTag": lambda: given(tagged())}


@planted("own-generator", base=nn.Module, generator=lambda: torch.Generator().manual_seed(1))
def own_generator(self, x):
    return torch.sin(x * torch.rand(x.shape, generator=self.generator))


@planted("own-generator", base=nn.Module, generator=lambda: np.random.default_rng(1))
def own_numpy(self, x):
    return torch.sin(x * float(self.generator.random()))


@planted("own-generator", base=nn.Module, generator=lambda: random.Random(1))
def own_random(self, x):
    return torch.sin(x * self.generator.random())


@planted("argument-cache", lambda: given(torch.randn(3, 4), [torch.ones(3, 4)]))
def cache(self, x, past):
    past.append(self.inner(x).detach())
    return torch.stack(past).sum(0).tanh() * x


@planted("argument-cache", lambda: given(torch.randn(3, 4), past={}))
def cache_by_key(self, x, past=None):
    past["keys"] = torch.cat([past["keys"], x.detach()]) if "keys" in past else x.detach()
    return self.inner(x) * past["keys"].sum(0).tanh()


class Session:
    """What a caller hands in."""

    name = ""


@planted("argument-changed", lambda: given(torch.randn(3, 4), Session()))
def changes_object(self, x, session):
    session.name += "x"
    return self.inner(x)


@planted("tag-changed", lambda: given(torch.randn(3, 4), torch.rand(3, 4)))
def marks_mask(self, x, mask):
    first = not hasattr(mask, "prepared")
    mask.prepared = True
    return (self.inner(x) * mask).tanh() if first else (self.inner(x) * mask.exp()).tanh()


@planted("hook-in-forward")
def hooks_each_time(self, x):
    self.inner.register_forward_hook(lambda module, taken, y: y * 1.1)
    return self.inner(x).tanh()


@planted("hook-in-forward")
def hooks_weight(self, x):
    self.inner.weight.register_hook(lambda gradient: gradient * 2)
    return self.inner(x).tanh()


@planted("seed-in-forward")
def seeds_python(self, x):
    random.seed(7)
    return (self.inner(x) * random.random()).tanh()


@planted("early-stop")
def hooks_for_one_forward(self, x):
    """Takes its hook away when it is done, which the recomputation never is."""
    handle = self.inner.register_forward_hook(lambda module, taken, y: y + 1)
    y = self.inner(x).sin()
    handle.remove()
    return y


@planted("early-stop")
def puts_random_back(self, x):
    before = random.getstate()
    random.seed(3)
    y = (self.inner(x) * random.random()).sin()
    random.setstate(before)
    return y


@planted("early-stop", average=lambda: torch.randn(4, 4))
def exchanges_weights(self, x):
    """Computes with an average of its weights, and takes its own back."""
    own = self.inner.weight.data
    self.inner.weight.data = self.average
    y = self.inner(x).tanh()
    self.inner.weight.data = own
    return y


calls = 7


@planted("counter", calls=0)
def called_like_a_global(self, x):
    """The code that names the attribute seems to name the global."""
    self.calls += 1
    return self.inner(x)


@planted("attribute-changed", scale=lambda: array.array("d", [1.0]))
def keeps_bytes(self, x):
    self.scale[0] *= 1.5
    return (self.inner(x) * self.scale[0]).tanh()


@planted("collected-twice", seen=collections.UserList)
def keeps_a_list(self, x):
    self.seen.append(1)
    return self.inner(x)


@planted("counter", engine=lambda: torch.quasirandom.SobolEngine(4, scramble=True, seed=1))
def sobol(self, x):
    """The first draw alone leaves the numbers as they are: that is no early stop."""
    return (self.inner(x) * self.engine.draw(1)).tanh()


@planted("clock-or-entropy")
def seed_of_the_system(self, x):
    torch.seed()
    return nn.functional.dropout(self.inner(x), 0.5).tanh()


@planted("ragged-size")
def nests_within(self, x):
    rows = torch.nested.nested_tensor_from_jagged(x, torch.tensor([0, 1, 3]))
    return self.inner(rows).tanh().values()


@planted("cache-filled")
def table_of_a_policy(self, x):
    """The table has no graph: only a policy misses the operators that made it."""
    cos, sin = _table(4)
    y = self.inner(x)
    p, q = y.chunk(2, -1)
    return self.inner(torch.cat([p * cos - q * sin, p * sin + q * cos], -1))


@functools.cache
def _table(width: int) -> tuple[torch.Tensor, torch.Tensor]:
    angles = torch.outer(torch.arange(3.0), 10000 ** -(torch.arange(0, width, 2) / width))
    return angles.cos(), angles.sin()
