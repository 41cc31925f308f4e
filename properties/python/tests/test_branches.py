"""Branches that no trial reaches are said by file and line."""

import sys
from pathlib import Path

import pytest
import torch
from modules import Inner
from torch import nn

from rematch.safe import judge
from rematch.safe.branches import TRACED

X = torch.randn(3, 4, generator=torch.Generator().manual_seed(1))


class Branches(Inner):
    def __init__(self) -> None:
        super().__init__()
        self.step, self.limit, self.width, self.rate = 0, 100, 4, 0.0

    def forward(self, x, mask=None):
        self.step += 1
        y = self.inner(x)
        if self.step > self.limit:  # reached by no trial
            y = y.sin()
        largest = y.abs().max().item()
        if self.training and largest > 1e6:  # reached by no trial
            y = y / largest
        y = y.cos() if torch.isnan(y).any() else y.tanh()  # reached by no trial
        if not torch.rand(1) < 2.0:  # reached by no trial
            y = y * 2
        for i in range(3):
            y = y + 1 if i == self.width else y
        if mask is not None or x.shape[0] > 8 or self.width > 8 or isinstance(y, nn.Module):
            y = y * 3
        return y + 1 if y.sum() > 0 else y - 1 if y.sum() <= 0 else y * 4


def untried(verdict):
    return [what for what, _ in verdict.not_tried if what.startswith(("the branch", "branches"))]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python does not tell where its jumps stand")
def test_branches_by_counters_values_and_chance_are_named_and_those_by_settings_and_types_are_not():
    lines = Path(__file__).read_text().splitlines()
    expected = [n for n, line in enumerate(lines, 1) if line.endswith("# reached by no trial")]
    found = untried(judge(Branches(), X, variants=["non_reentrant"]))
    assert [int(what.split(":")[1].split()[0]) for what in found][: len(expected)] == expected, found
    assert found[0] == f"the branch at {Path(__file__).name}:{expected[0]} by self.step > self.limit"
    # Which of the last two is one-sided depends on the numbers.
    assert len(found) <= len(expected) + 2


def test_a_process_that_is_traced_stays_so_and_the_report_says_what_was_not_looked_at():
    def trace(frame, event, arg):
        return None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        verdict = judge(Branches(), X, variants=["non_reentrant"])
        assert sys.gettrace() is trace
    finally:
        sys.settrace(before)
    assert ("branches that a value or a counter decides", TRACED) in verdict.not_tried


def test_functions_of_libraries_are_not_looked_into():
    layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
    assert not untried(judge(layer, torch.randn(2, 3, 4), variants=["non_reentrant"]))
