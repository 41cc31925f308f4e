"""Modules that read what changes between two of their calls: what callers set, a length, a clock, a mask that a switch
drops; and sound ones that seem to."""

import contextvars
import datetime
import os
import resource
import time

import torch
from modules import Inner, given, plant, planted, sound
from torch import nn
from torch.utils.checkpoint import checkpoint


class Masked(Inner):
    def __init__(self) -> None:
        super().__init__()
        self.mask = None

    def forward(self, x):
        y = self.inner(x).tanh()
        return y if self.mask is None else y * self.mask


@planted("set-by-callers")
def mask_is_set():
    """By an assignment from outside."""
    module = Masked()
    module.mask = torch.tensor([1.0, 0.0, 1.0, 1.0])
    return module


@sound()
def mask_is_passed():
    """The mask that is set is an argument of the region."""

    class Passes(Masked):
        def forward(self, x):
            return checkpoint(lambda y, mask: self.inner(y).tanh() * mask, x, self.mask, use_reentrant=False)

    module = Passes()
    module.mask = torch.tensor([1.0, 0.0, 1.0, 1.0])
    return module


@planted("set-by-callers")
class StrengthIsSet(Inner):
    """By a method, which the forward does not call; the branch is another one for another number."""

    def __init__(self) -> None:
        super().__init__()
        self._strength = 1.0

    @property
    def strength(self):
        return self._strength

    @strength.setter
    def strength(self, value):
        self._strength = value

    def forward(self, x):
        return self._scaled(self.inner(x)).tanh()

    def _scaled(self, y):
        return y.sin() * self.strength if self.strength == 1.0 else y.cos() * self.strength


@planted("set-by-callers")
class WarmsUp(Inner):
    """A branch that only a far later step takes."""

    def __init__(self) -> None:
        super().__init__()
        self.step, self.warmup = 0, 100

    def set_step(self, step):
        self.step = step

    def forward(self, x):
        y = self.inner(x)
        return y.tanh() if self.step < self.warmup else y.sin()


SCALE: contextvars.ContextVar[float] = contextvars.ContextVar("scale", default=1.0)
MASK = torch.tensor([True, False, True, True])


def set_global_mask(mask):
    global MASK
    MASK = mask


OPTIONS = {"mask": MASK}


def set_option(name, value):
    OPTIONS[name] = value


@planted("set-by-callers")
class BufferIsWritten(Inner):
    """By a method for callers, in place."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.ones(4))

    def rescale(self, scale):
        self.scale.copy_(scale)

    def forward(self, x):
        return (self.inner(x).tanh() * self.scale).sin()


@planted("set-by-callers")
class EntryIsSet(Inner):
    def __init__(self) -> None:
        super().__init__()
        self.context = {"scale": 2.0}

    def enter(self, **context):
        self.context.update(context)

    def forward(self, x):
        return (self.inner(x).tanh() * self.context["scale"]).sin()


SETTERS = []


@planted("set-by-callers")
def variable_around_is_set():
    """By a function beside the region."""
    inner, scale = nn.Linear(4, 4), 1.0

    def rescale(value):
        nonlocal scale
        scale = value

    def forward(x):
        return (inner(x).tanh() * scale).sin()

    SETTERS.append(rescale)
    return forward


@sound()
class BufferIsItsOwn(Inner):
    """What __init__() registers, and writes in place, is not for callers."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.ones(4))
        self.register_buffer("angles", torch.rand(4))
        self.reset()

    def reset(self):
        self.scale.fill_(2.0)

    def forward(self, x):
        return (self.inner(x).tanh() * self.scale).sin() * self.angles.cos()


plant(
    {
        "set-by-callers:reads_context_variable": lambda self, x: (self.inner(x) * SCALE.get()).tanh(),
        "set-by-callers:reads_global_mask": lambda self, x: self.inner(x).masked_fill(~MASK, 0.0).tanh(),
        "set-by-callers:reads_global_options": lambda self, x: self.inner(x).masked_fill(~OPTIONS["mask"], 0.0).tanh(),
        "clock-or-entropy:AnotherMinute": lambda self, x: (self.inner(x) * (1 + int(time.time() // 60) % 2)).tanh(),
        "clock-or-entropy:AnotherHour": lambda self, x: (self.inner(x) * (1 + datetime.datetime.now().hour)).tanh(),
        "clock-or-entropy:AnotherDay": lambda self, x: (self.inner(x) * (1 + time.localtime().tm_mday % 2)).tanh(),
        "clock-or-entropy:ByMemory": lambda self, x: (
            self.inner(x).half().float().tanh() if memory_in_kilobytes() > 1 << 24 else self.inner(x).tanh()
        ),
        "clock-or-entropy:ByLoad": lambda self, x: torch.cat(
            [self.inner(part).tanh() for part in x.chunk(2 if os.getloadavg()[0] > 16 else 1)]
        ),
    }
)


def memory_in_kilobytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def sequences():
    return given(torch.randn(2, 3, 4))


@planted("changed-by-later-forward", sequences, length=0, decay=None)
def stretches_decay(self, x):
    """Makes it in the first forward, which its recomputation need not."""
    if x.shape[1] > self.length:
        self.length, self.decay = x.shape[1], torch.linspace(1, 0.5, x.shape[1]).view(-1, 1)
    return (self.inner(x) * self.decay[: x.shape[1]]).tanh()


@planted(
    "changed-by-later-forward",
    lambda: given(torch.randn(3, 4), torch.tensor([[1, 0, 2]])),
    highest=lambda: nn.Buffer(torch.zeros(())),
)
def highest_first_token(self, x, tokens):
    """Other forwards have other tokens, too."""
    with torch.no_grad():
        self.highest.copy_(torch.maximum(self.highest, tokens[:, 0].max()))
    return (self.inner(x) / self.highest.clone()).tanh()


@sound(sequences, table=lambda: torch.zeros(0, 1))
def grows_table(self, x, rows=None):
    """A longer table begins like a shorter one."""
    if x.shape[1] > len(self.table):
        self.table = torch.arange(x.shape[1]).view(-1, 1).cos()
    return (self.inner(x) * self.table[: x.shape[1]]).tanh()


class Layer(Inner):
    def forward(self, x, mask=None, label=""):
        y = self.inner(x).tanh()
        return y if mask is None else y * mask[..., None]


class Layers(nn.Module):
    """A model with a switch of its own that takes a mask."""

    gradient_checkpointing = True

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(2))

    def forward(self, x, attention_mask=None):
        for layer in self.layers:
            x = self.recomputed(layer, x, attention_mask) if self.gradient_checkpointing else layer(x, attention_mask)
        return x


@planted("switch-changes-more", sequences)
class DropsMask(Layers):
    def recomputed(self, layer, x, mask):
        return checkpoint(layer, x, use_reentrant=False)


@planted("switch-hands-others", sequences)
class HandsByOtherPlaces(Layers):
    """Wrong by arguments that change nothing in what was tried."""

    def recomputed(self, layer, x, mask):
        return checkpoint(layer, x, mask, "last", use_reentrant=False)


@sound(sequences)
class PassesMask(Layers):
    def recomputed(self, layer, x, mask):
        return checkpoint(layer, x, mask=mask, use_reentrant=False)


class Half(Inner):
    def forward(self, x, recomputes):
        return checkpoint(self.inner, x, use_reentrant=False) if recomputes else self.inner(x)


@sound(sequences)
class HandsSwitchOn(Layers):
    """Its layers checkpoint themselves."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Half() for _ in range(2))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x, self.gradient_checkpointing)
        return x


@sound(seconds=0.0, minute=0, memory=0)
def times_itself(self, x):
    """A clock that changes no number."""
    begin = time.perf_counter()
    y = self.inner(x).tanh()
    self.seconds, self.minute = time.perf_counter() - begin, datetime.datetime.now().minute
    self.memory = memory_in_kilobytes()
    return y


@sound()
class HoldsConstants(Inner):
    """Tensors and numbers that __init__() makes, itself or by a method, or the first forward."""

    def __init__(self) -> None:
        super().__init__()
        self.cos, self.scale, self.ramp = torch.arange(4.0).cos(), 0.5, None
        self.reset()

    def reset(self):
        self.sin, self.power = torch.arange(4.0).sin(), 2

    def forward(self, x):
        if self.ramp is None:
            self.ramp = torch.arange(4.0)
        y = self.inner(x) * self.scale
        return (y * self.cos + y.flip(-1) * self.sin + self.ramp).tanh() ** self.power


@sound()
class IsSetForALog(Inner):
    """What callers set changes no number."""

    def __init__(self) -> None:
        super().__init__()
        self.step, self.log = 0, ""

    def set_step(self, step):
        self.step = step

    def forward(self, x):
        self.log = f"step {self.step}"
        return self.inner(x).tanh()


@sound()
class TakesWhatItsBaseHolds(nn.LayerNorm):
    """The constructor of a class of PyTorch sets what the forward reads."""

    def __init__(self) -> None:
        super().__init__(4)

    def forward(self, x):
        return nn.functional.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps * 2).tanh()
