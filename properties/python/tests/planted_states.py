"""Modules whose states end as others under checkpointing, or decide what the recomputation does."""

import collections
import contextvars
import itertools
import os
import weakref

import numpy as np
import torch
from modules import plant, planted
from torch import nn
from torch.utils.checkpoint import checkpoint

NUMBERS = itertools.count(1)
plant(
    {
        "batch-norm:batch_norm": lambda: nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)),
        "instance-norm:instance_norm": lambda: nn.Sequential(
            nn.Unflatten(1, (2, 2)), nn.InstanceNorm1d(2, track_running_stats=True)
        ),
        "spectral-norm:spectral_norm": lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4)),
        "spectral-norm:old_spectral_norm": lambda: nn.utils.spectral_norm(nn.Linear(4, 4)),
        "observer:observer": lambda: nn.Sequential(torch.ao.quantization.FakeQuantize(), nn.Linear(4, 4)),
        "iterator:TakesNumber": lambda self, x: (self.inner(x) / next(NUMBERS)).tanh(),
    }
)


@planted("buffer-counter", calls=lambda: nn.Buffer(torch.zeros((), dtype=torch.long)))
def counts(self, x):
    self.calls += 1
    return self.inner(x)


@planted("buffer-average", mean=lambda: nn.Buffer(torch.zeros(4)))
def averages(self, x):
    self.mean.lerp_(x.detach().mean(0), 0.1)
    return self.inner(x - self.mean)


@planted("buffer-cache", past=lambda: nn.Buffer(torch.zeros(1, 4)))
def grows(self, x):
    self.past = torch.cat([self.past, x.detach()])
    return self.inner(x) + self.past.mean(0)


@planted("parameter-written")
def clamps(self, x):
    with torch.no_grad():
        self.inner.weight.mul_(0.9)
    return self.inner(x).tanh()


@planted("counter", step=0)
def schedules(self, x):
    self.step += 1
    return (self.inner(x) * self.step).tanh()


@planted("flag", base=nn.Module, turn=False)
def alternates(self, x):
    self.turn = not self.turn
    return torch.tanh(torch.sin(x)) if self.turn else torch.exp(x)


@planted("collected-twice", norms=list)
def collects(self, x):
    self.norms.append(float(x.norm()))
    return self.inner(x)


SHARED = {"calls": 0}


@planted("global-changed", base=nn.Module)
def uses_global(self, x):
    SHARED["calls"] += 1
    return (x * SHARED["calls"]).tanh()


@planted("class-attribute")
class UsesClass(nn.Module):
    seen = 0

    def forward(self, x):
        type(self).seen += 1
        return (x * type(self).seen).tanh()


@planted("closure-changed")
def closure():
    layer, calls = nn.Linear(4, 4), 0

    def forward(x):
        nonlocal calls
        calls += 1
        return (layer(x) * calls).tanh()

    return forward


@planted("tensor-attribute", total=lambda: torch.zeros(4))
def keeps_tensor(self, x):
    self.total = self.total + x.detach().sum(0)
    return self.inner(x)


@planted("created-in-forward")
def lazy(self, x):
    if not hasattr(self, "scale"):
        self.scale = "made"
        return self.inner(x).tanh()
    return self.inner(x).sin().tanh()


@planted("mode-changed", drop=lambda: nn.Dropout(0.5))
def eval_afterwards(self, x):
    y = checkpoint(lambda z: self.drop(self.inner(z)).tanh(), x, use_reentrant=False)
    self.drop.eval()
    return y


@planted("environment")
def reads_environment(self, x):
    first = "REMATCH_TEST_TURN" not in os.environ
    os.environ["REMATCH_TEST_TURN"] = "1"
    return self.inner(x).tanh() if first else self.inner(x).sin().tanh()


@planted("closure-changed")
def late_binding():
    layers = [nn.Linear(4, 4) for _ in range(3)]

    def model(x):
        for layer in layers:
            x = checkpoint(lambda y: layer(y).tanh(), x, use_reentrant=False)  # noqa: B023
        return x

    return model


@planted("attribute-changed", last="a")
def names(self, x):
    self.last += "a"
    return self.inner(x)


@planted("iterator", base=nn.Module, scales=lambda: itertools.cycle([1.0, 2.0, 3.0]))
def iterates(self, x):
    return (x * next(self.scales)).tanh()


VARIABLE: contextvars.ContextVar[int] = contextvars.ContextVar("turn", default=0)


@planted("global-changed", base=nn.Module)
def uses_variable(self, x):
    VARIABLE.set(VARIABLE.get() + 1)
    return (x * VARIABLE.get()).tanh()


@planted("random-state-moves")
def draws_in_vain():
    layer = nn.Linear(4, 4)

    def block(x):
        torch.rand(3)
        return layer(x).tanh()

    return lambda x: checkpoint(block, x, use_reentrant=False, preserve_rng_state=False)


@planted("closure-changed")
def takes_from_list(self, x):
    scales = [3.0, 2.0]
    return checkpoint(lambda y: (self.inner(y) * scales.pop()).tanh(), x, use_reentrant=False)


@planted("flag")
def freezes_itself(self, x):
    y = self.inner(x).tanh()
    self.inner.requires_grad_(False)
    return y


@planted("carried-state", hidden=None)
def carries(self, x):
    before = torch.zeros(3, 4) if self.hidden is None else self.hidden
    y = (self.inner(x) + before).tanh()
    self.hidden = y.detach()
    return y


@planted("global-changed")
def sets_switch(self, x):
    on = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(not on)
    return (self.inner(x) * (2.0 if on else 1.0)).tanh()


@planted("collected-twice", memory=lambda: collections.deque(maxlen=3))
def recalls(self, x):
    """Begins with an empty memory, so that the recomputation computes more than its forward did."""
    y = self.inner(x)
    y = y + sum(self.memory) if self.memory else y
    self.memory.append(y.detach())
    return y.tanh()


@planted("cache-filled", known=weakref.WeakKeyDictionary)
def caches_by_module(self, x):
    """In a mapping that is no dict."""
    if self.inner not in self.known:
        self.known[self.inner] = self.inner(x).detach().exp()
    return self.inner(x).tanh() * self.known[self.inner]


@planted("created-in-forward", head=None)
def makes_module(self, x):
    y = self.inner(x)
    if self.head is None:
        self.head = nn.Linear(4, 4)
        return y.sin()
    return self.head(y).tanh()


@planted("attribute-changed", scales=lambda: collections.deque([1.0, 2.0, 3.0]))
def rotates(self, x):
    self.scales.rotate(1)
    return (self.inner(x) * self.scales[0]).tanh()


@planted("attribute-changed", mean=lambda: np.zeros(4, "float32"))
def keeps_array(self, x):
    self.mean *= 0.9
    self.mean += 0.1
    return (self.inner(x) - torch.from_numpy(self.mean.copy())).tanh()
