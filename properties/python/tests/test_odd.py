"""Odd tensors, objects, functions, options and habits: none of them breaks what judges it, or what runs after it."""

import collections
import contextlib
import dataclasses
import gc
import logging
import os
import random
import signal
import sys
import threading
import time
import warnings

import numpy as np
import pytest
import torch
from modules import causes, maker
from odd import DTYPES, FUNCTIONS, HABITS, OBJECTS, STORED, TENSORS, WITHOUT_MEMORY, Block, Uses, X
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint, set_checkpoint_debug_enabled

import rematch
from rematch.safe import judge, judge_model, target_run
from rematch.safe.scenarios import FIRST, NON_REENTRANT, REENTRANT, SCENARIOS
from rematch.safe.target import Target
from rematch.safe.trials import Trier


def snapshot():
    """What a process has: read without the package."""
    hooks = torch._C._autograd._top_saved_tensors_default_hooks(False)
    return {
        "streams": (sys.stdin, sys.stdout, sys.stderr, sys.excepthook),
        "directory": os.getcwd(),
        "environment": dict(os.environ),
        "collector": gc.isenabled(),
        "recursion": sys.getrecursionlimit(),
        "filters": list(warnings.filters),
        "signals": [signal.getsignal(s) for s in signal.Signals],
        "alarm": signal.getitimer(signal.ITIMER_REAL),
        "logging": (logging.root.level, logging.root.manager.disable),
        "modes": (torch.is_grad_enabled(), torch.is_anomaly_enabled(), torch.get_default_dtype()),
        "stacks": (hooks, torch._C._len_torch_dispatch_stack(), torch._C._len_torch_function_stack()),
        "functions": {k: v for k, v in vars(F).items() if callable(v)},
        "random": (torch.get_rng_state().tolist(), random.getstate(), repr(np.random.get_state())),
    }


@contextlib.contextmanager
def nothing_is_left():
    before = snapshot()
    yield
    after = snapshot()
    assert [name for name in before if before[name] != after[name]] == []
    for reentrant in (True, False):
        checkpoint(nn.Linear(4, 4), X.clone().requires_grad_(), use_reentrant=reentrant).sum().backward()


def verdict_of(target, *args, scenarios=(FIRST,), variants=(REENTRANT, NON_REENTRANT), **kwargs):
    """The verdict on a few scenarios; no finding of it is an error of this package."""
    with nothing_is_left():
        subject = Target(target, args or (X,), kwargs)
        try:
            verdict = Trier(subject, list(variants), [], 0, False).judge(scenarios)
        finally:
            subject.end()
    assert "rematch" not in " ".join(finding.what for finding in verdict.findings)
    return verdict


def block(forward, **held):
    """A Block that computes otherwise."""
    return maker(forward, None, Block, **held)()


# All views of a dtype at once.
@pytest.mark.parametrize("name", [*DTYPES, *STORED, *WITHOUT_MEMORY, *OBJECTS])
def test_what_a_module_holds_and_does_not_use_accuses_nothing(name):
    views = [make() for of, make in TENSORS.items() if of.startswith(f"{name}, ")]
    thing = views or (STORED | WITHOUT_MEMORY | OBJECTS)[name]()
    assert verdict_of(Block(thing), variants=[NON_REENTRANT]).safe


@pytest.mark.parametrize("name", [n for n in STORED if n != "overlapping"] + ["float32, expanded", "int64, expanded"])
def test_a_buffer_of_any_layout_may_be_used(name):
    assert verdict_of(Uses((TENSORS | STORED)[name]())).safe


@pytest.mark.parametrize("name", [n for n in STORED if not n.startswith("parameter")] + ["bool, expanded"])
def test_a_buffer_of_any_layout_may_lie_beside_a_counter(name):
    def counts(self, x):
        self.count += 1
        return Block.forward(self, x) * self.count

    module = block(counts, count=0, thing=(TENSORS | STORED)[name])
    assert causes(verdict_of(module)) == ["counter"]
    assert module.count == 0


@pytest.mark.parametrize("name", ["file", "lock", "generator", "iterator of a loader", "cannot be copied"])
def test_an_argument_that_cannot_be_copied_is_told_and_no_error(name):
    verdict = verdict_of(lambda x, thing: torch.tanh(x), X, OBJECTS[name]())
    assert verdict.safe
    assert "not seen: what a run changes in input 1, because it cannot be copied" in str(verdict)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_any_make_may_be_judged(name):
    assert verdict_of(FUNCTIONS[name]()).safe


OPTIONS = [{"debug": True}, {"determinism_check": "none"}, {"early_stop": False}, {"preserve_rng_state": False}]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_options_of_checkpoint_accuse_nothing(options):
    variant = dataclasses.replace(NON_REENTRANT, options=options)
    assert verdict_of(Block(), scenarios=SCENARIOS, variants=[variant]).safe


def test_debug_that_is_on_around_accuses_nothing(monkeypatch):
    # pytest keeps what is logged, and so the tensors in it: its handlers are at the root, or at what does not propagate.
    monkeypatch.setattr(logging.getLogger("LoggingTensor"), "handlers", [])
    monkeypatch.setattr(logging.getLogger("LoggingTensor"), "propagate", False)
    with set_checkpoint_debug_enabled(True):
        assert verdict_of(Block(), scenarios=SCENARIOS).safe


def leaks(enter, leave):
    """A forward that undoes what it does behind the last operator, which early stop does not reach."""

    def forward(self, x):
        kept = enter()
        y = Block.forward(self, x)
        leave(kept)
        return y

    return block(forward)


@pytest.mark.parametrize("name", HABITS)
def test_what_early_stop_leaves_in_the_process_is_told_and_put_back(name):
    verdict = verdict_of(leaks(*HABITS[name]), variants=[NON_REENTRANT])
    assert not verdict.safe
    assert name in str(verdict)
    assert verdict_of(leaks(*HABITS[name]), variants=[REENTRANT]).safe


def test_hooks_of_saved_tensors_that_a_forward_leaves_are_taken_off():
    def leaves(self, x):
        torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t).__enter__()
        return Block.forward(self, x)

    verdict_of(block(leaves))


@pytest.mark.parametrize("kind", [nn.Parameter, nn.Buffer, torch.clone])
def test_a_leaf_that_a_reentrant_region_returns_does_not_end(kind):
    def returns(self, x):
        return self.lin(x), self.leaf

    module = block(returns, leaf=lambda: kind(torch.ones(4)))
    verdict = verdict_of(module, scenarios=SCENARIOS)
    assert "does-not-end" in causes(verdict)
    assert all(finding.variants == ["reentrant"] for finding in verdict.findings)
    assert module.leaf.is_leaf


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(target_run, "PATIENCE", 0.2)
    monkeypatch.setattr(target_run, "TIMES", 1)


def test_a_run_that_waits_is_stopped_and_the_rest_goes_on(impatient):
    lock = threading.Lock()
    verdict = verdict_of(leaks(lock.acquire, lambda _: lock.release()), scenarios=SCENARIOS)
    assert causes(verdict) == ["early-stop", "does-not-end"]
    assert "does not end: stopped after" in str(verdict)
    assert set(verdict.tried) == {"reentrant", "non_reentrant"} and not lock.locked()


def test_a_run_that_computes_without_end_is_stopped(impatient):
    def spins(self, x):
        with contextlib.suppress(Exception):
            while not torch.is_grad_enabled():
                pass
        return Block.forward(self, x)

    assert causes(verdict_of(block(spins))) == ["does-not-end"]


def test_a_thread_beside_the_main_one_judges_as_well_and_says_that_it_cannot_stop_a_run():
    found = []
    thread = threading.Thread(target=lambda: found.append(judge(Block(), X)))
    thread.start()
    thread.join()
    assert found[0].safe and "not seen: a run that does not end, because signals" in str(found[0])


@pytest.mark.parametrize("kind", [dict, list, collections.deque, tuple])
def test_a_large_container_of_plain_values_costs_microseconds_an_entry(kind):
    content = ((f"word {i}", i) for i in range(200_000))
    module = Block(kind(content) if kind is dict else kind(i for _, i in content))
    begin = time.process_time()
    assert verdict_of(module).safe
    assert time.process_time() - begin < 200_000 * 20e-6


def test_a_large_container_whose_values_change_is_told():
    def notes(self, x):
        self.thing["word 1"] += 1
        return Block.forward(self, x)

    module = block(notes, thing={f"word {i}": i for i in range(1000)})
    verdict = verdict_of(module)
    assert not verdict.safe and "thing" in str(verdict)
    assert module.thing["word 1"] == 1


class Net(nn.Module):
    def __init__(self, *blocks):
        super().__init__()
        self.blocks, self.gradient_checkpointing = nn.ModuleList(blocks), False

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.gradient_checkpointing else block(x)
        return x


def test_what_fails_with_the_switch_on_alone_is_judged_and_no_plain_failure():
    class Fails(Net):
        def forward(self, x):
            if self.gradient_checkpointing:
                raise ValueError("not with the switch on")
            return super().forward(x)

    only_on, always = Fails(Block()), Net(nn.Linear(3, 3))
    with nothing_is_left():
        verdict = judge_model(only_on, X)
    assert not verdict.safe and "not with the switch on" in str(verdict)
    with nothing_is_left(), pytest.raises(RuntimeError, match="fails in a plain step"):
        judge_model(always, X)


def test_a_model_of_compiled_blocks_that_never_ran_may_be_judged():
    blocks = [torch.compile(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), backend="aot_eager") for _ in range(2)]
    with nothing_is_left():
        assert judge_model(Net(*blocks), X).safe


@pytest.mark.parametrize("name", [*STORED, "float32, expanded", "float32, every second"])
def test_watch_and_observe_leave_a_step_with_odd_buffers_as_it_is(name):
    net = Net(*(Block() for _ in range(2)))
    for block in net.blocks:
        block.register_buffer("odd", (TENSORS | STORED)[name]())
    net.gradient_checkpointing = True
    with nothing_is_left():
        watch = rematch.watch(net, on_difference="raise", every=1)
        net(X).sum().backward()
        watch.remove()
        with rematch.observe(net) as seen:
            net(X).sum().backward()
    assert watch.compared == 2 and seen.saved_bytes > 0
