"""observe() counts what happens in a model, and leaves nothing behind."""

from __future__ import annotations

import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

import rematch  # noqa: E402


class Model(nn.Module):
    def __init__(self, reentrant: bool | None) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 4)) for _ in range(2))
        self.reentrant = reentrant

    def forward(self, x):
        x = self.layers[0](x)
        if self.reentrant is None:
            return self.layers[1](x)
        return checkpoint(self.layers[1], x, use_reentrant=self.reentrant)


def step(model):
    with rematch.observe(model) as seen:
        model(torch.ones(3, 4)).sum().backward()
    return seen


@pytest.mark.parametrize("reentrant", [True, False])
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


def test_nothing_is_left_on_the_model_even_after_an_error():
    model = Model(False)
    with pytest.raises(ValueError), rematch.observe(model):
        raise ValueError
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    assert step(model).executions("layers.1.2") == 2


def test_an_unknown_name_is_refused_with_near_ones():
    with pytest.raises(KeyError, match="did you mean layers.1"):
        step(Model(None)).executions("layer.1")


def test_importing_the_package_does_not_import_pytorch():
    program = "import sys, rematch; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
