"""One journal observes PyTorch: who reads it, that readers do not disturb each other, nor what runs. observe() counts
with it what happens in a model."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import rematch
from rematch.journal.journal import BACKWARD, FORWARD, RECOMPUTATION, Journal
from rematch.journal.operators import Operators, Reader

VARIANTS = pytest.mark.parametrize("reentrant", [True, False])
PACKAGE = Path(rematch.__file__).parent
COPIED = "frameworks/pytorch/contract/probing.py"
"""Goes into exported scripts as it is, which have PyTorch alone."""
TESTS, JOURNAL = PACKAGE.rglob("test_*.py"), (PACKAGE / "journal").iterdir()
SOURCES = set(PACKAGE.rglob("*.py")).difference(TESTS, JOURNAL, [PACKAGE / COPIED])


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
    def __init__(self, reentrant: bool | None = False) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 4)) for _ in range(2))
        self.reentrant = reentrant

    def forward(self, x):
        x = self.layers[0](x)
        if self.reentrant is None:
            return self.layers[1](x)
        return checkpoint(self.layers[1], x, use_reentrant=self.reentrant)


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
        model(torch.ones(3, 4, requires_grad=True)).sum().backward()
    return unseen


@VARIANTS
def test_events_have_a_rising_number_and_say_phase_and_module(reentrant):
    log = Log()
    assert logged(Model(reentrant), log) == []
    assert [number for number, *_ in log.lines] == list(range(1, len(log.lines) + 1))
    ops = [line[2:] for line in log.lines if line[1] == "ran"]
    assert {phase for phase, *_ in ops} == {FORWARD, BACKWARD, RECOMPUTATION}
    drawn = [(phase, module) for phase, module, _, draws in ops if draws]
    assert drawn == [(FORWARD, "layers.0.1"), (FORWARD, "layers.1.1"), (RECOMPUTATION, "layers.1.1")]
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


@pytest.mark.parametrize("run", [lambda model: logged(model, Log()), lambda model: step(model)])
def test_after_an_error_nothing_is_left_on_pytorch_or_the_model(run):
    class Raises(nn.Module):
        def forward(self, x):
            raise KeyError

    model = nn.Sequential(Raises())
    with pytest.raises(KeyError):
        run(model)
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


def step(model):
    with rematch.observe(model) as seen:
        model(torch.ones(3, 4)).sum().backward()
    return seen


@VARIANTS
def test_recomputations_are_told_from_forwards(reentrant):
    seen = step(Model(reentrant))
    assert (seen.executions(""), seen.executions("layers.0"), seen.executions("layers.1")) == (1, 1, 2)
    assert (seen.recomputations("layers.0"), seen.recomputations("layers.1")) == (0, 1)
    drawn = [("layers.0.1", False), ("layers.1.1", False), ("layers.1.1", True)]
    assert [(draw.module, draw.recomputed) for draw in seen.draws] == drawn


def test_a_checkpointed_block_keeps_its_input_alone():
    """Of two equal blocks one is checkpointed; its input has 3 x 4 floats."""
    plain, checkpointed = step(Model(None)).saved_bytes, step(Model(False)).saved_bytes
    assert plain % 2 == 0
    assert checkpointed == plain // 2 + 3 * 4 * 4


def test_an_unknown_name_is_refused_with_near_ones():
    with pytest.raises(KeyError, match="did you mean layers.1"):
        step(Model(None)).executions("layer.1")


def test_importing_the_package_does_not_import_pytorch():
    program = "import sys, rematch; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
