"""What steps hold is counted to the byte, and memory that is not saved is told."""

from functools import partial

import pytest
import sound as sound_modules  # noqa: F401
import torch
from modules import SOUND, arguments_of, causes, linear, maker
from planted_computations import KEEPS_ALL
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.distributed._tools.mem_tracker import MemTracker
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

from rematch import judge, judge_model
from rematch.safe.memory import measure
from rematch.safe.scenarios import FIRST, NON_REENTRANT, REENTRANT
from rematch.safe.target import Target
from rematch.safe.target_run import called

WIDTH = 16
X = torch.randn(3, 4)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(x)))


class Model(nn.Module):
    """Blocks behind a frozen tower; `save_memory` turns checkpointing on."""

    def __init__(self):
        super().__init__()
        self.save_memory = False
        self.tower = nn.ModuleList(Layer() for _ in range(4)).requires_grad_(False)
        self.blocks = nn.ModuleList(Layer() for _ in range(2))

    def seen(self, x):
        for layer in self.tower:
            x = layer(x)
        return x

    def once(self, block, x):
        return checkpoint(block, x, use_reentrant=False) if self.save_memory else block(x)

    def forward(self, x):
        x = self.seen(x)
        for block in self.blocks:
            x = self.once(block, x)
        return x


class GraphOfAFrozenTower(Model):
    def seen(self, x):
        return super().seen(x.clone().requires_grad_() if self.save_memory else x)


class OnlyOnce(Model):
    steps = 0

    def forward(self, x):
        self.steps += 1
        self.save_memory = self.save_memory and self.steps < 2
        return super().forward(x)


class Cycle(Model):
    def once(self, block, x):
        y = super().once(block, x)
        y.itself = [y] if self.save_memory else None
        return y


class Parts(Layer):
    """Its last part is checkpointed, and what stands before holds more."""

    def forward(self, x, parts):
        hidden = nn.functional.gelu(self.up(x)).sin()
        return x + (checkpoint(self.down, hidden, use_reentrant=False) if parts else self.down(hidden))


class HalfOfTheBlock(Model):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Parts() for _ in range(2))

    def once(self, block, x):
        return block(x, self.save_memory)


def batch():
    return torch.randn(8, WIDTH)


def test_a_model_that_holds_less_has_no_finding_about_its_memory():
    own = judge_model(Model(), batch(), switch="save_memory").own
    assert own.safe and own.saved["own"] < own.saved["plain"] and not own.findings


class Twice(nn.Module):
    save_memory = False

    def forward(self, x):
        return (checkpoint(torch.sin, x * 2, use_reentrant=False) if self.save_memory else (x * 2).sin()) * 3


def test_a_batch_is_the_callers():
    x = torch.randn(4, 4, requires_grad=True)
    assert judge_model(Twice(), x, switch="save_memory").own.saved == {"plain": x.nbytes, "own": x.nbytes}


@pytest.mark.parametrize(
    ("model", "cause"), [(GraphOfAFrozenTower, "switch-keeps-more"), (OnlyOnce, "no-longer-checkpointed")]
)
def test_a_switch_that_saves_nothing_or_not_for_long_is_not_safe(model, cause):
    verdict = judge_model(model(), batch(), switch="save_memory")
    assert not verdict.safe and cause in causes(verdict.own), str(verdict)


def test_a_switch_whose_memory_is_accepted_is_safe():
    verdict = judge_model(GraphOfAFrozenTower(), batch(), switch="save_memory", ignore=["switch-keeps-more"])
    assert verdict.safe, str(verdict)


def test_a_part_that_is_left_out_is_told_with_its_bytes():
    (remark,) = judge_model(HalfOfTheBlock(), batch(), switch="save_memory").own.findings
    assert remark.cause.name == "part-not-checkpointed" and remark.about == "blocks.0, blocks.1"


def test_what_waits_for_the_garbage_collector_is_told():
    own = judge_model(Cycle(), batch(), switch="save_memory").own
    assert own.safe and causes(own) == ["memory-waits"]


def test_memory_that_grows_from_step_to_step_is_not_safe():
    def keeps(self, x):
        """Identity hooks exempt a part of a region."""
        with saved_tensors_hooks(lambda t: t, lambda t: t):
            x = self.inner(x).relu()
        return self.last(x)

    make = maker(keeps, None, last=linear)
    verdict = judge(make(), X, variants="non_reentrant")
    assert causes(verdict) == ["memory-grows"] and not verdict.safe
    assert judge(make(), X, variants="reentrant").safe


def keeping(op):
    return partial(create_selective_checkpoint_contexts, [op])


@pytest.mark.parametrize(
    ("keeps", "cause"),
    [
        (keeping(torch.ops.aten.mm.default), ["policy-matches-nothing"]),
        (KEEPS_ALL, ["policy-keeps-all"]),
        (keeping(torch.ops.aten.addmm.default), []),
    ],
)
def test_a_policy_that_decides_nothing_is_told_with_the_operators_that_it_saw(keeps, cause):
    verdict = judge(nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4)), X, context_fn=keeps)
    assert verdict.safe and causes(verdict) == cause
    assert not cause or "aten.addmm.default, aten.t.default, aten.tanh.default" in verdict.findings[0].what


def test_what_a_policy_keeps_is_held():
    block = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
    verdicts = [judge(block, X, variants="non_reentrant", context_fn=f) for f in (None, KEEPS_ALL)]
    saved = [verdict.saved["non_reentrant"] for verdict in verdicts]
    # Beside the input, what two layers and a function return.
    assert saved == [X.nbytes, 4 * X.nbytes]


def test_a_region_holds_what_it_is_given_also_in_containers():
    given = nn.utils.rnn.pack_padded_sequence(torch.randn(5, 3, 4), [5, 4, 2])
    make = maker(lambda self, sequence: self.rnn(sequence)[1], None, nn.Module, rnn=lambda: nn.GRU(4, 4))
    saved = judge(make(), given).saved
    assert saved["non_reentrant"] == given.data.nbytes + given.batch_sizes.nbytes


def test_sparse_tensors_are_counted():
    x = torch.randn(4, 4)
    # The values and two rows of indices of 16 elements, which the product saves, and the result of tanh.
    verdict = judge(lambda x: torch.sparse.mm(x.detach().to_sparse(), x.t()).tanh() * 2, x)
    assert verdict.saved["plain"] == 16 * 4 + 2 * 16 * 8 + x.nbytes


def tracked(function, args, kwargs, variant):
    """What PyTorch's MemTracker says that a step holds for its backward, and its peak, beyond what was there."""
    torch.manual_seed(0)
    tracker, target = MemTracker(), Target(function, args, kwargs)
    tracker.track_external(*target.state.tensors().values(), *args)

    def total(kind):
        return sum(snapshot["Total"] for snapshot in tracker.get_tracker_snapshot(kind).values())

    before = total("current")
    with tracker:
        # A copy, as an activation is.
        fresh = [a.clone() for a in args]
        returned = called(target, FIRST, variant)(*fresh, **kwargs)
        loss = target.loss_of(returned, weigh=False)
        del returned, fresh
        held = total("current") - before - loss.nbytes
        loss.backward()
    return held, total("peak") - before


def modules_of_tensors():
    """Sound modules that take floating tensors alone, and have no region of their own."""
    found = []
    # Other tests import further modules, some of which checkpoint themselves.
    for make in (one for one in SOUND if one.__module__ in ("modules", "sound")):
        args, kwargs = arguments_of(make)
        if all(type(a) is torch.Tensor and a.is_floating_point() for a in args) and not kwargs:
            found.append(make)
    return found


def test_the_tracker_is_asked_about_30_modules():
    assert len(modules_of_tensors()) >= 30


@pytest.mark.parametrize("make", modules_of_tensors()[:30], ids=lambda make: make.__name__)
def test_what_steps_hold_and_their_peak_are_those_of_the_tracker_of_pytorch(make):
    args, kwargs = arguments_of(make)
    args = [a.detach().requires_grad_() for a in args]
    for variant in (None, NON_REENTRANT, REENTRANT):
        ours = measure(Target(make(), args, kwargs), variant, 0)
        assert (ours.held, ours.steps[0].peak) == tracked(make(), args, kwargs, variant), variant
