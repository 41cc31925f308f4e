"""judge_model() and models that checkpoint inside: their own switch, and their blocks."""

import pytest
import torch
from modules import causes, maker
from test_safe import X, conv
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

from rematch.safe import judge, judge_model


def layer(*more):
    return nn.Sequential(nn.Linear(4, 4), *more, nn.Tanh())


def through(blocks, x, checkpoints):
    for block in blocks:
        x = checkpoint(block, x, use_reentrant=False) if checkpoints else block(x)
    return x


def test_what_a_model_checkpoints_inside_is_no_part_of_the_plain_run():
    blocks = nn.ModuleList(conv() for _ in range(2))
    verdict = judge(lambda x: through(blocks, x, True), X)
    assert list(verdict.tried) == ["own"] and not verdict.safe
    assert causes(verdict) == ["batch-norm"]


class Stack(nn.Module):
    """A model with a switch of its own, of which half of the blocks know; two more do not run."""

    def __init__(self) -> None:
        super().__init__()
        blocks = [nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4)) for _ in range(6)]
        self.first, self.second, self.third = (nn.ModuleList(blocks[n : n + 2]) for n in (0, 2, 4))
        self.gradient_checkpointing = False

    def forward(self, x):
        return through(self.second, through(self.first, x, self.gradient_checkpointing), False)


def test_a_whole_model_is_judged_by_its_switch_and_one_block_of_each_kind():
    model = Stack()
    verdict = judge_model(model, X)
    assert verdict.safe and verdict.switch == "the attribute gradient_checkpointing"
    assert [block.names for block in verdict.blocks] == [["first.0", "first.1"]]
    remarks = [finding.about for finding in verdict.findings if finding.cause.name == "not-checkpointed"]
    assert remarks == ["second.0, second.1"]
    assert model.gradient_checkpointing is False
    assert "safe as far as tried" in verdict.table()


def test_inputs_of_a_model_need_not_require_grad():
    class AsksInputForGradients(Stack):
        """As models for speech do, whose first layers may be frozen."""

        def forward(self, x):
            x.requires_grad = True
            return super().forward(x)

    verdict = judge_model(AsksInputForGradients(), X)
    assert verdict.own is not None and verdict.own.safe, verdict


def test_blocks_of_a_model_can_be_named_by_a_pattern_or_several():
    verdict = judge_model(Stack(), X, blocks="second.*")
    assert [block.names for block in verdict.blocks] == [["second.0", "second.1"]]
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Sequential(nn.Linear(4, 4)), nn.Linear(4, 2))
    verdict = judge_model(model, X, blocks=["0", "2.*"])
    assert [name for block in verdict.blocks for name in block.names] == ["0", "2.0"]
    with pytest.raises(TypeError, match="judge_model.. expects a module, got function"):
        judge_model(lambda x: x, X)


def test_a_flag_with_another_meaning_that_gates_a_checkpoint_accuses_nobody():
    def gated(self, x):
        return x + checkpoint(self.inner, x, use_reentrant=False) if self.use_branch else x * 1.0

    verdict = judge(maker(gated, None, use_branch=True)(), X)
    assert verdict.safe and not verdict.findings, verdict.report()
    assert any("use_branch" in what for what, _ in verdict.not_tried)


def test_wrappers_that_rename_parameters_are_remarked_of_a_model():
    blocks = [checkpoint_wrapper(layer()) for _ in range(2)]
    verdict = judge_model(nn.Sequential(nn.Linear(4, 4), *blocks), X)
    assert verdict.safe and verdict.headline().endswith("see the remarks (names-changed)")
    assert "1._checkpoint_wrapped_module.0.weight" in str(verdict)


class Scales(nn.Module):
    """Computes something else where its flag, which its class holds, is on."""

    gradient_checkpointing = False

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(layer() for _ in range(2))

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, 2 * x, use_reentrant=False) if self.gradient_checkpointing else block(x)
        return x


def test_a_flag_of_a_class_is_a_switch():
    verdict = judge_model(Scales(), X)
    assert verdict.switch == "the attribute gradient_checkpointing"
    assert [finding.cause.name for finding in verdict.findings if not finding.remark] == ["switch-changes-more"]


class Backbone(Scales):
    def gradient_checkpointing_enable(self) -> None:
        self.gradient_checkpointing = True

    def gradient_checkpointing_disable(self) -> None:
        self.gradient_checkpointing = False


def test_the_switch_of_a_part_of_a_model_is_found():
    verdict = judge_model(nn.Sequential(nn.Linear(4, 4), Backbone()), X)
    assert verdict.switch == "gradient_checkpointing_enable() of 1" and not verdict.safe


class Recomputes(torch.autograd.Function):
    """A checkpoint that owes nothing to PyTorch's."""

    @staticmethod
    def forward(context, function, x, *parameters):
        context.function = function
        context.save_for_backward(x)
        with torch.no_grad():
            return function(x)

    @staticmethod
    def backward(context, gradient):
        x = context.saved_tensors[0].detach().requires_grad_()
        with torch.enable_grad():
            y = context.function(x)
        parameters = list(context.function.parameters())
        gradients = iter(torch.autograd.grad(y, [x, *(p for p in parameters if p.requires_grad)], gradient))
        return None, next(gradients), *(next(gradients) if p.requires_grad else None for p in parameters)


class OfItsOwn(nn.Module):
    slim = False

    def __init__(self, *more: nn.Module) -> None:
        super().__init__()
        self.block = layer(*more)

    def forward(self, x):
        return Recomputes.apply(self.block, x, *self.block.parameters()) if self.slim else self.block(x)


def test_a_switch_is_judged_also_where_it_does_not_reach_checkpoint():
    verdict = judge_model(OfItsOwn(nn.Dropout(0.5)), X, switch="slim")
    assert verdict.own is not None and not verdict.safe, str(verdict)
    verdict = judge_model(OfItsOwn(), X, switch="slim")
    assert verdict.own is not None and verdict.own.saved["own"] < verdict.own.saved["plain"]
    assert [finding.scenario.name for finding in verdict.findings] == ["autocast to bfloat16"], "it forgets autocast"


@pytest.mark.parametrize(
    ("options", "headline"),
    [
        (
            {"switch": "no_such_flag"},
            "Sequential was not judged: the attribute no_such_flag was turned on, and no region was checkpointed",
        ),
        ({}, "The blocks of Sequential are safe to checkpoint as far as they were tried"),
    ],
)
def test_without_a_switch_that_does_anything_the_answer_is_about_blocks(options, headline):
    verdict = judge_model(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)), X, **options)
    assert verdict.headline() == headline and verdict.safe == (not options)


def test_all_modules_that_a_region_calls_are_checkpointed():
    def segments(self, x):
        return checkpoint_sequential(self.blocks, 2, x, use_reentrant=False) if self.remat else self.blocks(x)

    blocks = nn.Sequential(*(layer() for _ in range(4)))
    model = maker(segments, None, nn.Module, blocks=lambda: blocks, remat=False)()
    remark = next(f for f in judge_model(model, X).findings if f.remark)
    assert remark.about == "blocks.2, blocks.3"
    assert remark.what == "only blocks.0, blocks.1 are checkpointed"


class Decodes(Stack):
    """A model that adds a key to a cache in each forward; its own checkpointing drops the cache, in evaluation as well
    and without gradients."""

    def forward(self, x, cache=()):
        keys = [] if self.gradient_checkpointing else cache
        if isinstance(keys, list):
            keys.append(x.detach())
        return super().forward(x) + sum(key.sum() for key in keys)


def test_a_forward_alone_is_judged_with_its_cache_which_stays_as_it_was():
    cache = [torch.ones(4), torch.ones(4)]
    verdict = judge_model(Decodes(), X, kwargs={"cache": cache}, grad=False)
    assert "switch-changes-more" in causes(verdict.own) and not verdict.blocks and len(cache) == 2
    assert verdict.headline().startswith("Decodes without gradients is not safe to checkpoint (switch-changes-more")


def test_a_model_that_checkpoints_nothing_without_gradients_is_judged_all_the_same():
    class AsksForGradients(Decodes):
        def forward(self, x, cache=()):
            on, self.gradient_checkpointing = self.gradient_checkpointing, False
            y = super().forward(x, cache) if not torch.is_grad_enabled() else through(self.first, x, on)
            self.gradient_checkpointing = on
            return y

    verdict = judge_model(AsksForGradients(), X, kwargs={"cache": [torch.ones(4)]}, grad=False)
    assert verdict.safe and not verdict.own.saved, verdict
    assert all("backward" not in name or "forwards before" in name for name in verdict.own.tried["own"])


def test_an_error_of_the_branch_behind_the_switch_is_put_down_to_what_it_hands_over():
    class Shifted(Stack):
        """The checkpointed branch leaves out an argument by position, so that the mask comes one place too early."""

        def forward(self, x, mask=None):
            block, masked = self.first[0], lambda y, scale, mask: block(y) * scale if mask is None else block(y) * mask
            self.first[1].forward = masked
            if self.gradient_checkpointing:
                return checkpoint(self.first[1], x, mask[:, :3] if mask is not None else 1, None, use_reentrant=False)
            return self.first[1](x, 1, mask)

    mask = torch.tensor([[1.0, 0, 1, 1]] * X.shape[0])
    verdict = judge_model(Shifted(), X, kwargs={"mask": mask}, most_blocks=0)
    assert "switch-changes-more" in causes(verdict.own) and "undecided" not in causes(verdict.own), verdict
