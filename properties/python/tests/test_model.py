"""judge_model() and models that checkpoint inside: their own switch, and their blocks."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from test_safe import Conv, X  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from rematch.safe import judge, judge_model  # noqa: E402


def test_what_a_model_checkpoints_inside_is_no_part_of_the_plain_run():
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.ModuleList(Conv() for _ in range(2))

        def forward(self, x):
            for block in self.blocks:
                x = checkpoint(block, x, use_reentrant=False)
            return x

    verdict = judge(Model(), X)
    assert list(verdict.tried) == ["own"] and not verdict.safe
    assert [finding.cause.name for finding in verdict.findings] == ["batch-norm"]


class Stack(nn.Module):
    """A model with a switch of its own, of which half of the blocks know; two more do not run."""

    def __init__(self, switch: bool = False) -> None:
        super().__init__()
        blocks = [nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4)) for _ in range(6)]
        self.first, self.second, self.third = (nn.ModuleList(blocks[n : n + 2]) for n in (0, 2, 4))
        self.gradient_checkpointing = switch

    def forward(self, x):
        for block in self.first:
            x = checkpoint(block, x, use_reentrant=False) if self.gradient_checkpointing else block(x)
        for block in self.second:
            x = block(x)
        return x


def test_a_whole_model_is_judged_by_its_switch_and_one_block_of_each_kind():
    model = Stack()
    verdict = judge_model(model, X)
    assert verdict.safe and verdict.switch == "the attribute gradient_checkpointing"
    assert [block.names for block in verdict.blocks] == [["first.0", "first.1", "second.0", "second.1"]]
    remarks = [finding.about for finding in verdict.findings if finding.cause.name == "not-checkpointed"]
    assert remarks == ["second.0, second.1"]
    assert model.gradient_checkpointing is False
    assert "safe as far as tried" in verdict.table()


class AsksInputForGradients(Stack):
    """As models for speech do, whose first layers may be frozen."""

    def forward(self, x):
        x.requires_grad = True
        return super().forward(x)


def test_inputs_of_a_model_need_not_require_grad():
    verdict = judge_model(AsksInputForGradients(), X)
    assert verdict.own is not None and verdict.own.safe, verdict


def test_blocks_of_a_model_can_be_named():
    verdict = judge_model(Stack(), X, blocks="second.*")
    assert [block.names for block in verdict.blocks] == [["second.0", "second.1"]]


def test_a_flag_with_another_meaning_that_gates_a_checkpoint_accuses_nobody():
    class Gated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.use_branch = nn.Linear(4, 4), True

        def forward(self, x):
            return x + checkpoint(self.inner, x, use_reentrant=False) if self.use_branch else x * 1.0

    verdict = judge(Gated(), X)
    assert verdict.safe and not verdict.findings, verdict.report()
    assert any("use_branch" in what for what, _ in verdict.not_tried)


def test_wrappers_that_rename_parameters_are_remarked_of_a_model():
    blocks = [checkpoint_wrapper(nn.Sequential(nn.Linear(4, 4), nn.Tanh())) for _ in range(2)]
    verdict = judge_model(nn.Sequential(nn.Linear(4, 4), *blocks), X)
    assert verdict.safe and verdict.headline().endswith("see the remarks")
    assert "1._checkpoint_wrapped_module.0.weight" in str(verdict)
