"""The check that libraries of models may paste finds what is wrong in a small library, and accuses nothing right."""

import functools
import itertools
import math
from functools import partial

import pytest
import torch
from checkpointing_test import check_gradient_checkpointing, distance
from torch import nn
from torch.utils import checkpoint as checkpoints
from torch.utils.checkpoint import checkpoint

WIDTH = 8
MASK = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
run, LOST = nn.Module.__call__, "gradient of embed.weight differs"


def right(block, args, kwargs, call=run, **options):
    """The way in which the library checkpoints a block."""
    if not block.training:
        return run(block, *args, **kwargs)
    return checkpoint(partial(call, block, **kwargs), *args, use_reentrant=block.reentrant, **options)


class Block(nn.Module):
    checkpoints = reentrant = noisy = False
    way, normalization, p = right, nn.LayerNorm, 0.1

    def __init__(self):
        super().__init__()
        self.query, self.value, self.unused = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.norm, self.drop = self.normalization(WIDTH), nn.Dropout(self.p)
        self.noise = torch.Generator().manual_seed(0) if self.noisy else None

    def __call__(self, *args, **kwargs):
        return type(self).way(self, args, kwargs) if self.checkpoints else run(self, *args, **kwargs)

    def forward(self, x, memory, mask=None, cache=None):
        scores = self.query(x) @ memory.transpose(1, 2)
        if self.noise:
            scores = scores + torch.rand(scores.shape, generator=self.noise)
        scores = scores if mask is None else scores.masked_fill(~mask[:, None], -9.0)
        y = self.drop(scores.softmax(-1)) @ self.value(memory)
        if cache is not None:
            cache.append(y.detach())
        y = self.norm((x + y).flatten(0, 1)).view(x.shape)
        return y, y.tanh()


class Model(nn.Module):
    def __init__(self, block=Block, count=2):
        super().__init__()
        self.embed, self.head = nn.Embedding(16, WIDTH), nn.Linear(WIDTH, 16)
        self.encoder, self.decoder = (nn.ModuleList(block() for _ in range(count)) for _ in range(2))

    def run(self, block, x, memory, **kwargs):
        return block(x, memory, **kwargs)

    def forward(self, ids, mask, scale=1.0, cache=None):
        x = y = branch = self.embed(ids) * scale
        for block in self.encoder:
            x, branch = self.run(block, x, x + 1, mask=mask, cache=cache)
        for block in self.decoder:
            y, branch = self.run(block, y, x, mask=mask, cache=cache)
        return {"logits": self.head(y), "branch": branch}


def either(model, reentrant):
    model.segments = 4
    for block in [*model.encoder, *model.decoder]:
        block.checkpoints, block.reentrant = True, reentrant
    if reentrant:
        model.embed.register_forward_hook(lambda module, args, out: out if out.requires_grad else out.requires_grad_())


def every_block(model):
    either(model, False)


def batch(**more):
    return {"ids": torch.arange(10).view(2, 5), "mask": MASK, "scale": torch.tensor(2.0)} | more


def check(make=Model, turn_on=every_block, given=None, **options):
    check_gradient_checkpointing(make, given or batch(), turn_on, **options)


def made(base=Block, **attributes):
    """What makes models of a kind of block."""
    return partial(Model, type("Block", (base,), attributes))


def second_call(again):
    """A way whose recomputations call `again`."""

    def way(block, args, kwargs):
        calls = iter([run])
        return right(block, args, kwargs, lambda *a, **k: next(calls, again)(*a, **k))

    return way


def loses_autocast(block, *args, **kwargs):
    with torch.autocast("cpu", enabled=False):
        return run(block, *(a.float() for a in args), **kwargs)


def with_hook(hook):
    def way(block, args, kwargs):
        y, branch = right(block, args, kwargs)
        if y.requires_grad:
            y.register_hook(lambda gradient: hook(block, gradient))
        return y, branch

    return way


def keeps_keywords(block, args, kwargs):
    block.__dict__["kept"] = kwargs
    return right(block, args, {}, lambda *a: run(*a, **block.kept))


def twice(block, args, kwargs):
    plain = run(block, *args, **kwargs)
    right(block, args, kwargs)
    return plain


WAYS = {
    "drops keywords": (lambda b, a, k: right(b, a, {}), "output 0.logits differs"),
    "swaps arguments": (lambda b, a, k: right(b, a[::-1], k), "output 0.logits differs"),
    "drops an output": (lambda b, a, k: (right(b, a, k)[0], None), "output 0.branch is missing"),
    "loses random states": (lambda b, a, k: right(b, a, k, preserve_rng_state=False), "random state 0 differs"),
    "in evaluation alone": (
        lambda b, a, k: run(b, *a, **k) if b.training else right(b, a, k),
        "nothing is checkpointed",
    ),
    "loses the mask": (second_call(lambda b, *a, mask, **k: run(b, *a, mask=mask | True, **k)), LOST),
    "detaches outputs": (
        lambda b, a, k: [y.detach().requires_grad_() for y in right(b, a, k)],
        "embed.weight is missing",
    ),
    "without gradients": (lambda b, a, k: torch.no_grad()(right)(b, a, k), "loss is missing"),
    "detaches an argument": (lambda b, a, k: right(b, (a[0].detach(), *a[1:]), k), LOST),
    "loses autocast": (lambda b, a, k: right(b, a, k, loses_autocast), "autocast: output 0.logits differs"),
    "a tensor as keyword of a reentrant checkpoint": (
        lambda b, a, k: checkpoint(partial(run, b, memory=a[1], **k), a[0], use_reentrant=True),
        "backward through the graph a second time",
    ),
    "draws another dropout": (second_call(lambda b, *a, **k: (torch.rand(()), run(b, *a, **k))[1]), LOST),
    "scales gradients twice": (with_hook(lambda b, gradient: gradient * 2), LOST),
    "writes over gradients": (
        with_hook(lambda b, _: b.zero_grad()),
        "two forwards: gradient of encoder.0.query.weight differs",
    ),
    "keeps arguments on the module": (keeps_keywords, "two forwards: gradient of embed.weight differs"),
    "changes evaluation": (lambda b, a, k: right(b, a if b.training else a[:1] * 2, k), "evaluation: output 0.logits"),
    "runs twice and keeps the plain one": (twice, "nothing is checkpointed"),
}


def all_but(chosen):
    return lambda model: every_block(model) or [setattr(block, "checkpoints", False) for block in chosen(model)]


class LateBound(Model):
    """The recomputation of every block of a loop runs the last one."""

    def run(self, block, x, memory, **kwargs):
        self.last = [block]
        late = block.checkpoints and partial(lambda *args: run(self.last[0], *args, **kwargs))
        return checkpoint(late, x, memory, use_reentrant=False) if late else run(block, x, memory, **kwargs)


FAULTS = {name: ({"make": made(way=way)}, words) for name, (way, words) in WAYS.items()} | {
    "writes to a cache twice": ({"given": batch(cache=[])}, "after the backward, argument.0.cache.4 is there"),
    "updates statistics twice": ({"make": made(normalization=nn.BatchNorm1d)}, "norm._buffers.running_mean differs"),
    "noise of a generator of its own": ({"make": made(noisy=True)}, "state of encoder.0.noise differs"),
    "half of the blocks": (
        {"turn_on": all_but(lambda m: [m.encoder[0], m.decoder[1]])},
        "decoder.1 is not checkpointed",
    ),
    "one of two lists": ({"turn_on": all_but(lambda m: m.decoder)}, "decoder.0 is not checkpointed"),
    "a switch without effect": ({"turn_on": lambda m: setattr(m, "checkpoint", True)}, "nothing is checkpointed"),
    "a switch that is not there": ({"turn_on": lambda m: m.enable()}, "no attribute 'enable'"),
    "a closure over the variable of a loop": ({"make": LateBound}, LOST),
    "frozen embeddings, reentrant": (
        {"make": made(reentrant=True), "turn_on": lambda m: [setattr(b, "checkpoints", True) for b in m.encoder]},
        "frozen embeddings: gradient of encoder.0.query.weight is missing",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_is_wrong_is_found_and_named(name):
    how, words = FAULTS[name]
    with pytest.raises((AssertionError, AttributeError, RuntimeError)) as error:
        check(**how)
    assert words in str(error.value)


class Shared(Model):
    """One block in every place, and one matrix at both ends."""

    def __init__(self):
        super().__init__()
        self.encoder = self.decoder = nn.ModuleList([self.encoder[0]] * 2)
        self.head.weight = self.embed.weight


def adapters():
    model = Model()
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("value" in name)
    return model


KEEPS_PRODUCTS = partial(checkpoints.create_selective_checkpoint_contexts, [torch.ops.aten.bmm.default])
SOUND = {
    "both variants": {"turn_on": either},
    "shared blocks and tied embeddings": {"make": Shared, "turn_on": either},
    "blocks that stay plain": {"turn_on": all_but(lambda m: m.decoder), "plain_blocks": ("decoder",)},
    "adapters": {"make": adapters, "turn_on": either},
    "without early stop": {
        "make": made(way=lambda b, a, k: checkpoints.set_checkpoint_early_stop(False)(right)(b, a, k))
    },
    "a policy": {"make": made(way=lambda b, a, k: right(b, a, k, context_fn=KEEPS_PRODUCTS))},
    "no dropout, random states not restored": {"make": made(p=0.0, way=WAYS["loses random states"][0])},
    "doubles": {"make": lambda: Model().double(), "given": batch(scale=torch.tensor(2.0, dtype=torch.double))},
    "bfloat16": {"make": lambda: Model().bfloat16(), "turn_on": either},
    "another second batch": {"second": batch(ids=torch.arange(8).view(2, 4), mask=MASK[:, :4])},
}


@pytest.mark.parametrize("name", SOUND)
@pytest.mark.filterwarnings("ignore:not tried")
def test_what_is_right_is_not_accused(name):
    check(**SOUND[name])


class Unordered(Block):
    """Adds in another order each time, as devices do that add atomically."""

    fault = 0.0

    def order(self):
        return torch.randperm(5, generator=torch.Generator().manual_seed(next(self.calls)))

    def forward(self, x, memory, **kwargs):
        total = functools.reduce(torch.add, x[:, self.order()].unbind(1))[:, None]
        return super().forward(x + total + self.fault * self.checkpoints, memory, **kwargs)


class ByGradMode(Unordered):
    """Adds in another order where no gradient is needed, as kernels of attention do."""

    def order(self):
        return [0, 1, 2, 3, 4] if torch.is_grad_enabled() else [4, 3, 2, 1, 0]


@pytest.mark.parametrize("base", [Unordered, ByGradMode])
def test_where_sums_have_another_order_numbers_may_differ_by_rounding_and_no_more(base):
    check(made(base, calls=itertools.count()), either)
    with pytest.raises(AssertionError, match="True, one step: output 0.logits differs by .* explains [1-9.]+e-0"):
        check(made(base, calls=itertools.count(), fault=0.01), either)
    with pytest.raises(AssertionError, match="True, two forwards: gradient of embed.weight differs"):
        check(made(base, calls=itertools.count(), way=keeps_keywords), either)
    with pytest.raises(AssertionError, match="between two plain runs from the same seeds"):
        check(made(base, calls=itertools.count(), order=lambda self: [next(self.calls) % 3] * 5))


def test_what_was_not_tried_is_said():
    with pytest.warns(UserWarning, match="not tried: dropout"):
        check(made(p=0.0))
    with pytest.warns(UserWarning, match="not tried: two forwards of different batches"):
        check(second=batch())
    with pytest.raises(AssertionError, match="frozen embeddings was not tried, since no output requires grad"):
        check(partial(Model, count=0))
    with pytest.raises(AssertionError, match="one step was not tried, since its loss is not finite"):
        check(given=batch(scale=torch.tensor(math.nan)))


def test_distance_tells_what_equality_does_not():
    zero, one = torch.zeros(2), torch.ones(2)
    assert distance(zero, zero) == distance(one * math.nan, one * math.nan) == 0
    assert distance(zero, -zero) > 0 and distance(zero, one) == 1 and distance(one, one * math.nan) == math.inf
    assert distance(one, one.double()) == distance(one, one[:1]) == distance(one, None) == math.inf
