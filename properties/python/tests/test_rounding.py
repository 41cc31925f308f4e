"""What is rounding and what is not: the bits decide, and float64 where the reentrant variant has other kernels."""

import pytest
import torch
from torch import nn

from rematch.safe import judge
from rematch.safe.compare import Change, rounding
from rematch.safe.state import BUFFER, Leaf
from rematch.safe.target_run import OUTPUT, Seen

EPS = torch.finfo(torch.float32).eps


def judged(apart, apart_wide, kind=OUTPUT, eps=EPS):
    """Whether a value of 1 that is off by `apart`, and by `apart_wide` in float64, counts as rounding."""
    one = torch.ones(3, dtype=torch.float64)
    change = Change("y", kind, one.float(), (one + apart).float(), "")
    wide = [Seen({"y": Leaf(kind, value)}) for value in (one, one + apart_wide)]
    return rounding([change], *wide, eps) == [change]


def test_a_difference_of_less_than_half_of_the_digits_that_float64_does_not_show_is_rounding():
    assert judged(3 * EPS, 0) and judged(100 * EPS, EPS / 4)
    assert not judged(3 * EPS, EPS)
    assert not judged(2 * EPS**0.5, 0)
    assert judged(2 * EPS**0.5, 0, eps=torch.finfo(torch.bfloat16).eps)


def test_states_that_no_forward_computes_are_compared_to_the_bit():
    assert not judged(EPS, 0, BUFFER)


def test_what_did_not_run_in_float64_is_not_excused():
    change = Change("y", OUTPUT, torch.ones(1), torch.ones(1) + EPS, "")
    assert rounding([change], Seen(), Seen(), EPS) == []


@pytest.mark.parametrize("variant", ["reentrant", "non_reentrant"])
def test_a_gradient_that_is_off_by_one_unit_is_found(variant):
    calls = []

    def block(x):
        calls.append(1)
        return (x * (1 + (len(calls) > 1) * EPS)).sin()

    verdict = judge(block, torch.randn(3, 4), variants=variant)
    assert any(finding.computed for finding in verdict.findings), verdict.report()


def test_a_fast_path_that_only_rounds_is_safe():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True).eval()
    x = torch.randn(2, 6, 16) * 30
    with torch.no_grad():
        fast = layer(x)
    assert not torch.equal(fast, layer(x))
    layer.train()  # judge() tries it in evaluation mode, too.
    verdict = judge(layer, x, variants="reentrant")
    assert verdict.safe, verdict.report()


def test_a_run_in_float64_puts_everything_back():
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True).eval()
    before = {name: tensor.clone() for name, tensor in layer.state_dict().items()}
    judge(layer, torch.randn(2, 6, 16), variants="reentrant")
    assert torch.get_default_dtype() == torch.float32
    assert all(torch.equal(tensor, before[name]) for name, tensor in layer.state_dict().items())
    assert all(tensor.dtype == before[name].dtype for name, tensor in layer.state_dict().items())
