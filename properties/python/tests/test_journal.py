"""One journal observes PyTorch: who reads it, that readers do not disturb each other, nor what runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

import rematch  # noqa: E402
from rematch.journal.journal import BACKWARD, FORWARD, RECOMPUTATION, Journal  # noqa: E402
from rematch.journal.operators import Operators, Reader  # noqa: E402

PACKAGE = Path(rematch.__file__).parent
COPIED = "frameworks/pytorch/contract/probing.py"
"""Goes into exported scripts as it is, which have PyTorch alone."""
SOURCES = [
    p
    for p in PACKAGE.rglob("*.py")
    if not p.name.startswith("test_") and p.parent.name != "journal" and p.relative_to(PACKAGE).as_posix() != COPIED
]


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def test_nothing_else_in_the_package_intercepts_operators_or_replaces_parts_of_checkpoint():
    intercepts = re.compile(r"\bTorchDispatchMode\b|\b__torch_dispatch__\s*=|def __torch_dispatch__")
    replaces = re.compile(r"\bCheckpointFunction\b|_checkpoint_without_reentrant_generator")
    for source in SOURCES:
        text = source.read_text()
        assert not intercepts.search(text), source
        assert not replaces.search(text), source
    assert len(SOURCES) > 100


class Model(nn.Module):
    def __init__(self, reentrant=False):
        super().__init__()
        self.first, self.reentrant = nn.Linear(3, 3), reentrant
        self.second = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5))

    def forward(self, x):
        return checkpoint(self.second, self.first(x).sin(), use_reentrant=self.reentrant).sum()


class Log(Reader):
    """Writes down all that it is told."""

    def __init__(self):
        self.lines, self.journal = [], None

    def after(self, op):
        assert op.number == self.journal.number
        self.add("ran", self.journal.phase, self.journal.module, op.name, op.draws)

    def begins(self, execution):
        self.add("begins", execution.region.number, execution.recomputes)

    def ends(self, execution):
        self.add("ends", execution.region.number, execution.recomputes)

    def enters(self, module):
        self.add("enters", module)

    def leaves(self, module, returned):
        self.add("leaves", module)

    def add(self, *line):
        self.lines.append((self.journal.number, *line))


class Fails(Log):
    """Cannot read anything."""

    def after(self, op):
        raise ValueError("of this kind")

    begins = ends = enters = after
    leaves = before = lambda *_: {}["nothing"]


def logged(model, *readers, reentrant=False):
    unseen = []
    # An error holds the tensors of its frames, and PyTorch copies what others hold.
    journal = Journal(dict(model.named_modules()), *readers, unseen=lambda what, error: unseen.append(type(error)))
    for reader in readers:
        reader.journal = journal
    torch.manual_seed(1)
    with journal.open():
        model(torch.ones(2, 3, requires_grad=True)).backward()
    return unseen


@pytest.mark.parametrize("reentrant", [True, False])
def test_events_have_a_rising_number_and_say_phase_and_module(reentrant):
    log = Log()
    assert logged(Model(reentrant), log) == []
    assert [number for number, *_ in log.lines] == list(range(1, len(log.lines) + 1))
    ops = [line[2:] for line in log.lines if line[1] == "ran"]
    assert {phase for phase, *_ in ops} == {FORWARD, BACKWARD, RECOMPUTATION}
    drawn = [(phase, module) for phase, module, _, draws in ops if draws]
    assert drawn == [(FORWARD, "second.1"), (RECOMPUTATION, "second.1")]
    regions = [line[1:] for line in log.lines if line[1] in ("begins", "ends")]
    assert regions == [(what, 0, again) for again in (False, True) for what in ("begins", "ends")]


def test_readers_together_read_what_each_reads_alone():
    alone, first, second = Log(), Log(), Log()
    logged(Model(), alone)
    logged(Model(), first, second)
    assert first.lines == second.lines == alone.lines


def test_a_reader_that_fails_disturbs_neither_the_run_nor_others_and_is_told():
    def step(*readers):
        torch.manual_seed(0)
        model = Model()
        unseen = logged(model, *readers)
        return unseen, [p.grad for p in model.parameters()]

    log = Log()
    unseen, gradients = step(Fails(), log)
    nothing, plain = step()
    assert all(torch.equal(a, b) for a, b in zip(plain, gradients, strict=True))
    assert nothing == [] and len(unseen) > 20
    assert set(unseen) == {ValueError, KeyError}
    alone = Log()
    logged(Model(), alone)
    assert log.lines == alone.lines


def test_after_an_error_nothing_is_left_on_pytorch_or_the_model():
    class Raises(nn.Module):
        def forward(self, x):
            raise KeyError

    model = nn.Sequential(Raises())
    with pytest.raises(KeyError):
        logged(model, Log())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    assert torch._C._len_torch_dispatch_stack() == 0
    assert torch._C._autograd._top_saved_tensors_default_hooks(True) is None


def test_what_no_reader_asks_for_costs_no_mode():
    class Modules(Reader):
        journal = None

        def enters(self, module):
            assert torch._C._len_torch_dispatch_stack() == 0

    assert logged(Model(), Modules()) == []


def test_a_subject_is_told_of_errors_of_its_own_reader():
    with pytest.raises(KeyError), Operators(Fails()):
        torch.ones(1)
