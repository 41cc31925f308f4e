"""What each cause advises makes the module safe that shows it."""

import contextlib
import functools
import os
import random
import time

import numpy as np
import planted_between as between
import planted_computations as computations
import planted_outside as outside
import planted_phases as phases
import planted_states as states
import pytest
import sound_outside
import torch
from modules import INPUTS, PLANTED, Inner, arguments_of, given, maker, planted_as
from torch import nn
from torch.nn.utils import parametrize
from torch.utils.checkpoint import checkpoint as any_checkpoint

from rematch.safe import judge
from rematch.safe.causes import CAUSES, Cause, memory

MEMORY = [cause.name for cause in vars(memory).values() if isinstance(cause, Cause)]

NO_ROW = {
    "kernel-by-grad-mode": "no operator is known that shows it on the CPU",
    "compiler": "it advises to do without",
    "kept-then-written": "the policies are those of the judge",
    "switch-drops-output": "it advises what to compare",
    "mode-changed": "it advises what to do after the backward",
    "names-changed": "it advises to change the switch, as the next ones do",
    "switch-changes-more": "the switch",
    "switch-adds-output": "the switch",
    "switch-cuts-graph": "the switch",
    "switch-makes-leaf": "the switch",
    **{name: "test_memory.py has the same without" for name in MEMORY},
}
checkpoint = functools.partial(any_checkpoint, use_reentrant=False)


class Passes(Inner):
    """What decides is called outside of the checkpoint, and what it returns passed in."""

    def __init__(self, decide):
        super().__init__()
        self.decide = decide

    def forward(self, x):
        return checkpoint(lambda y, number: (self.inner(y) * number).tanh(), x, self.decide(x))


def passes(decide):
    return lambda: Passes(decide)


class Recomputing:
    now = False

    def __enter__(self):
        Recomputing.now = True

    def __exit__(self, *_):
        Recomputing.now = False


def guarded(start, advanced):
    """What a state becomes follows from it and the input, and is not computed in the recomputation."""

    def forward(self, x):
        if not Recomputing.now:
            self.state = advanced(self.state, x.detach())
        return self.inner(x).tanh()

    return maker(forward, None, state=start)


GUARDED = {
    "buffer-counter": guarded(lambda: nn.Buffer(torch.zeros((), dtype=torch.long)), lambda old, x: old + 1),
    "buffer-average": guarded(lambda: nn.Buffer(torch.zeros(4)), lambda old, x: old.lerp_(x.mean(0), 0.1)),
    "buffer-cache": guarded(lambda: nn.Buffer(torch.zeros(1, 4)), lambda old, x: torch.cat([old, x])),
    "counter": guarded(0, lambda old, x: old + 1),
    "tensor-attribute": guarded(lambda: torch.zeros(4), lambda old, x: old + x.sum(0)),
}


def counting(holder, name):
    def count(x):
        setattr(holder, name, getattr(holder, name, 0) + 1)
        return getattr(holder, name)

    return count


def closure():
    calls = 0

    def count(x):
        nonlocal calls
        calls += 1
        return calls

    return count


CALLS = 0


def count_globally(x):
    global CALLS
    CALLS += 1
    return CALLS


def environment(x):
    first = "REMATCH_TEST_TURN" not in os.environ
    os.environ["REMATCH_TEST_TURN"] = "1"
    return 1.0 if first else 2.0


def around(make, width=4):
    """The layer that `make` makes is left out of the checkpoint."""

    def model():
        layer, rest = make(), nn.Sequential(nn.Linear(4, width), nn.Tanh())
        return lambda x: layer(checkpoint(rest, x))

    return model


def in_bfloat16(layer, x):
    torch.set_default_dtype(torch.bfloat16)
    try:
        return layer(x)
    finally:
        torch.set_default_dtype(torch.float32)


class Scaled(nn.Module):
    def forward(self, weight):
        return weight * 0.9


def parametrized():
    module = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    parametrize.register_parametrization(module[0], "weight", Scaled())
    return module


class Returns(Inner):
    """What is kept for the next forward is returned by the region, and stored outside."""

    def __init__(self, keep):
        super().__init__()
        self.keep, self.kept, self.last = keep, [], torch.zeros(4)

    def block(self, x, last):
        y = (self.inner(x) + last).tanh()
        return y, y.detach().mean(0)

    def forward(self, x, given=None):
        y, new = checkpoint(self.block, x, self.last)
        self.keep(self, given, new)
        return y


class SetsUp(Inner):
    """Scale, hook and table are made in __init__()."""

    def __init__(self):
        super().__init__()
        self.scale, self.known = "made", None
        self.inner.register_forward_hook(lambda module, taken, y: y * 1.1)

    def forward(self, x):
        if self.known is None:
            self.known = self.inner(x).detach().exp()
        return checkpoint(lambda y: self.inner(y).tanh() * self.known, x)


def shares_hidden(self, x):
    x = self.inner(x)
    hidden = x.exp()
    for _ in range(2):
        x = any_checkpoint(lambda y, z: (y * z).tanh(), x, hidden, use_reentrant=True)
    return x


def keeps(self, x):
    return checkpoint(lambda y: self.inner(y).sin().relu(), x, context_fn=computations.KEEPS_ALL)


class ReadsBefore(phases.Feedback):
    """The scale is read outside, where the hook sees the output of the region."""

    def forward(self, x):
        y = checkpoint(lambda z, scale: torch.tanh(self.inner(z) * scale), x, self.scale)
        if y.requires_grad:
            y.register_hook(self.see)
        return y


class HalvesNothing(phases.Halves):
    pack = unpack = staticmethod(lambda t: t)


class Unwraps(computations.Multiplies):
    def forward(self, x):
        return super().forward(x.as_subclass(torch.Tensor))


def reads_mask(self, x, mask):
    """What depends on the mark of the mask is computed before."""
    mask = mask if not hasattr(mask, "prepared") else mask.exp()
    return checkpoint(lambda y, z: (self.inner(y) * z).tanh(), x, mask)


def with_linear(function):
    layer = nn.Linear(4, 4)
    return lambda: lambda x: function(layer, x)


def own_generator():
    generator = np.random.default_rng(1)
    return Passes(lambda x: float(generator.random()))


def in_turn(*held):
    count = closure()
    return Passes(lambda x: held[count(x) % len(held)])


def maximum_outside(self, x):
    self.highest = max(self.highest, float(x.abs().max()))
    return checkpoint(lambda y, highest: (self.inner(y) / highest).tanh(), x, self.highest)


def catches_what_it_expects(self, x):
    try:
        return self.inner(x.exp()).tanh()
    except KeyError:
        return self.inner(x.exp()).sigmoid().tanh()


def clips_once():
    layer = nn.Linear(4, 4)
    layer.weight.register_hook(lambda gradient: gradient / (1 + gradient.norm()))
    return lambda x: checkpoint(lambda y: layer(y).tanh(), checkpoint(lambda y: layer(y).tanh(), x))


SAFE_AS_PLANTED = {"embedding", "ReturnsDetached", "force", "TakesDict", "ReturnsDict"}
SAFE_AS_PLANTED |= {"auxiliary_loss", "AsksGradMode", "fast_path"}
"""Without the reentrant variant, which is what is advised."""
FOLLOWED = {
    **{cause: make for cause, make in PLANTED if make.__name__ in SAFE_AS_PLANTED},
    **GUARDED,
    "rng-not-preserved": lambda: nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Tanh()),
    "random-state-moves": with_linear(lambda layer, x: checkpoint(lambda y: (torch.rand(3), layer(y))[1], x)),
    "clock-or-entropy": passes(lambda x: time.perf_counter()),
    "saved-before-filled": around(nn.RReLU, 64),
    "cache-filled": SetsUp,
    "created-in-forward": SetsUp,
    "hook-in-forward": SetsUp,
    "written-in-place": with_linear(lambda layer, x: checkpoint(lambda z: z.tanh().exp(), layer(x)).add(1)),
    "view-written": with_linear(lambda layer, x: checkpoint(lambda z: z.view(-1).clone(), layer(x)).mul_(2)),
    "graph-shared": maker(shares_hidden, None),
    "ragged-size": sound_outside.takes_nested_rows,
    "policy": maker(keeps, None),
    "context-closed": with_linear(lambda layer, x: checkpoint(in_bfloat16, layer, x)),
    "subclass": Unwraps,
    "offloaded-strides": with_linear(
        lambda layer, x: checkpoint(lambda y: layer(y).tanh(), torch.stack([x, x])[:, :2].contiguous())
    ),
    "batch-norm": lambda: nn.Sequential(nn.Linear(4, 4), nn.GroupNorm(2, 4)),
    "instance-norm": lambda: nn.Sequential(nn.Unflatten(1, (2, 2)), nn.InstanceNorm1d(2)),
    "spectral-norm": around(lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4))),
    "observer": around(torch.ao.quantization.FakeQuantize),
    "parameter-written": parametrized,
    "flag": lambda: in_turn(True, False),
    "iterator": lambda: in_turn(1.0, 2.0, 3.0),
    "attribute-changed": lambda: Passes(counting(outside.Session(), "count")),
    "class-attribute": passes(counting(states.UsesClass, "seen")),
    "global-changed": passes(count_globally),
    "closure-changed": lambda: Passes(closure()),
    "environment": passes(environment),
    "numpy-random": passes(lambda x: np.random.rand()),
    "python-random": passes(lambda x: random.random()),
    "own-generator": own_generator,
    "seed-in-forward": with_linear(lambda layer, x: (layer(x) * random.Random(7).random()).tanh()),
    "collected-twice": lambda: Returns(lambda m, given, new: m.kept.append(float(new.norm()))),
    "carried-state": lambda: Returns(lambda m, given, new: setattr(m, "last", new)),
    "argument-cache": lambda: Returns(lambda m, given, new: given.append(new)),
    "argument-changed": lambda: Returns(lambda m, given, new: setattr(given, "name", given.name + "x")),
    "argument-written": lambda: lambda x: x.clone().mul_(2).tanh(),
    "argument-consumed": maker(lambda self, x, given: (self.inner(x) * given.get("scale", 1.0)).tanh(), None),
    "tag-lost": passes(lambda x: getattr(x, "scale", 1.0)),
    "tag-changed": maker(reads_mask, None),
    "early-stop": sound_outside.counts_depth_and_cleans_up,
    "changed-in-backward": ReadsBefore,
    "changed-before-backward": sound_outside.calls_within_region,
    "hooks-change-values": HalvesNothing,
    "changed-by-later-forward": maker(maximum_outside, None, highest=0.1),
    "left-by-earlier-forward": lambda: Returns(lambda m, given, new: setattr(m, "noted", new)),
    "returned-then-changed": maker(lambda self, x: (checkpoint(lambda y: self.inner(y).tanh(), x), [x.detach()]), None),
    "transform-within": planted_as("differentiates_by_transform"),
    "swallows-early-stop": maker(catches_what_it_expects, None),
    "hook-of-parameter": clips_once,
    "set-by-callers": between.mask_is_passed,
    "switch-hands-others": between.PassesMask,
    "does-not-end": maker(lambda self, x: (self.inner(x), self.inner.weight.clone()), None),
}
"""By cause: what makes a module like the one in planted_*.py that shows it, but with the advice followed."""
OPTIONS = {
    **{cause: {"variants": "non_reentrant"} for cause, make in PLANTED if make.__name__ in SAFE_AS_PLANTED},
    **dict.fromkeys(GUARDED, {"context_fn": lambda: (contextlib.nullcontext(), Recomputing())}),
    "graph-shared": {"own": True},
    "transform-within": {"variants": "reentrant"},
}
ARGUMENTS = {
    "subclass": INPUTS["Multiplies"],
    "argument-consumed": INPUTS["Pops"],
    "tag-lost": INPUTS["ReadsTag"],
    "tag-changed": INPUTS["marks_mask"],
    "argument-cache": lambda: given(torch.randn(3, 4), []),
    "argument-changed": INPUTS["changes_object"],
}


@pytest.mark.parametrize("cause", FOLLOWED)
def test_who_follows_the_advice_is_safe(cause):
    make = FOLLOWED[cause]
    args, kwargs = arguments_of(make)
    args, kwargs = ARGUMENTS[cause]() if cause in ARGUMENTS else (args, kwargs)
    verdict = judge(make(), *args, kwargs=kwargs, **OPTIONS.get(cause, {}))
    assert verdict.safe and not any(finding.cause.name == cause for finding in verdict.findings), verdict.report()


def test_each_cause_has_a_row_or_a_reason():
    assert FOLLOWED.keys() | NO_ROW.keys() == CAUSES.keys() and not FOLLOWED.keys() & NO_ROW.keys()
