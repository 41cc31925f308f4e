"""assert_checkpoint_safe(), on modules that are safe and on those that are not."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import random
import time

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from rematch.safe import assert_checkpoint_safe, findings, judge  # noqa: E402


class Block(nn.Module):
    """A transformer's block, with dropout."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.attend = nn.MultiheadAttention(width, 4, dropout=0.1, batch_first=True)
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.mix = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Dropout(0.2), nn.Linear(2 * width, width))

    def forward(self, x):
        y = self.norms[0](x)
        x = x + self.attend(y, y, y, need_weights=False)[0]
        return x + self.mix(self.norms[1](x))


class Counts(nn.Module):
    """A buffer that advances with every forward."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return self.inner(x)


class NumpyNoise(nn.Module):
    def forward(self, x):
        return torch.tanh(x * torch.from_numpy(np.random.rand(*x.shape).astype("float32")))


class PythonNoise(nn.Module):
    def forward(self, x):
        return torch.tanh(x * random.random())


class OwnGenerator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.state = torch.Generator().manual_seed(1).get_state()

    def forward(self, x):
        generator = torch.Generator()
        generator.set_state(self.state)
        noise = torch.rand(x.shape, generator=generator)
        self.state = generator.get_state()
        return torch.sin(x * noise)


class Alternates(nn.Module):
    """Every other forward takes another way."""

    turn = False

    def forward(self, x):
        self.turn = not self.turn
        return torch.tanh(torch.sin(x)) if self.turn else torch.exp(x)


class InPlace(nn.Module):
    def forward(self, x):
        return x.mul_(2).tanh()


X = torch.randn(3, 4, generator=torch.Generator().manual_seed(2))


def report_of(module, *inputs, **options):
    with pytest.raises(AssertionError) as caught:
        assert_checkpoint_safe(module, *(inputs or (X,)), **options)
    return str(caught.value)


def test_a_transformer_block_with_dropout_is_safe():
    assert_checkpoint_safe(Block(), torch.randn(2, 5, 16))


@pytest.mark.parametrize(
    "module",
    [
        nn.Linear(4, 3),
        nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 2)),
        nn.Sequential(nn.LayerNorm(4), nn.SiLU()),
        nn.Identity(),
    ],
    ids=lambda module: type(module).__name__,
)
def test_modules_of_every_day_are_safe(module):
    assert_checkpoint_safe(module, X)


def test_a_function_may_be_asked_as_well():
    assert_checkpoint_safe(lambda a, b: torch.tanh(a) * b, X, X)


def test_a_buffer_that_advances_is_reported_with_the_operator_that_writes_it():
    text = report_of(Counts())
    assert "Counts is not safe to checkpoint" in text
    assert "buffer calls: element 0 is 2, in the plain run 1" in text
    assert "aten.add_.Tensor writes to calls in the recomputation, too" in text
    assert "use_reentrant=True and False, one training step" in text
    assert "Guard the update with a flag" in text and "context_fn" in text


def test_batch_norm_is_told_from_other_buffers():
    text = report_of(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)))
    assert "buffer 1.running_mean" in text
    assert "aten.native_batch_norm.default in 1 writes to 1.running_mean" in text
    assert "GroupNorm" in text


@pytest.mark.parametrize(("module", "name"), [(NumpyNoise(), "NumPy"), (PythonNoise(), "Python")])
def test_randomness_of_others_is_named(module, name):
    text = report_of(module)
    assert f"preserves PyTorch's default generators only, not {name}'s" in text
    assert "gradient of input 0" in text


def test_a_generator_of_the_modules_own_is_state_that_the_forward_changes():
    text = report_of(OwnGenerator())
    assert "a generator of its own" in text
    assert "aten.rand" in text and "computes something else" in text


def test_another_way_in_the_recomputation_is_named_operator_by_operator():
    text = report_of(Alternates())
    assert "the recomputation runs aten.exp.default, the forward ran aten.sin.default" in text


def test_a_result_may_be_written_in_place_but_an_input_may_not():
    assert findings(nn.Sequential(nn.Linear(4, 4), InPlace()), X) == []
    (finding,) = findings(InPlace(), X)
    assert finding.cause.name == "argument-written"
    assert finding.about == "input 0"


def test_microbatches_are_compared_with_their_own_forward():
    class Late(nn.Module):
        """Takes another way in its fourth execution."""

        calls = 0

        def forward(self, x):
            self.calls += 1
            return torch.tanh(x) if self.calls < 4 else torch.sin(x).tanh()

    text = report_of(Late())
    assert "gradient of input 0, microbatch 1" in text
    assert "the recomputation runs aten.sin.default, the forward ran aten.tanh.default" in text


def test_a_module_of_integers_needs_the_non_reentrant_variant():
    module, tokens = nn.Embedding(5, 3), torch.tensor([1, 2, 4])
    assert_checkpoint_safe(module, tokens, variants=["non_reentrant"])
    text = report_of(module, tokens)
    assert "gradient of weight: absent, in the plain run present" in text
    assert "use_reentrant=False" in text and "enable_input_require_grads" in text


def test_a_module_that_fails_without_checkpointing_is_not_judged():
    with pytest.raises(RuntimeError, match="fails without checkpointing, too"):
        findings(nn.Linear(7, 7), X)


def test_a_module_that_differs_from_itself_is_not_judged():
    class Entropy(nn.Module):
        def forward(self, x):
            return x * (torch.Generator().seed() % 1000)

    with pytest.raises(RuntimeError, match="two plain runs from the same seeds differ.*randomness of the system"):
        findings(Entropy(), X)


def test_a_module_that_reads_a_clock_is_judged_with_one_that_repeats():
    class Clock(nn.Module):
        def forward(self, x):
            return x * (time.perf_counter_ns() % 1000)

    clock = time.perf_counter_ns
    text = report_of(Clock())
    assert "clock-or-entropy: The forward computes with time.perf_counter_ns()" in text
    assert "replaced by numbers that repeat" in " ".join(text.split())
    assert time.perf_counter_ns is clock


def test_the_module_and_all_random_states_are_left_as_they_were():
    module = Counts()
    before = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()
    findings(module, X)
    assert module.calls == 0 and module.inner.weight.grad is None and module.training
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.random.get_state()[1].tolist() == before[1]
    assert random.getstate() == before[2]


def test_the_command_line_prints_the_report(capsys):
    from rematch.__main__ import main

    block = ["torch.nn:TransformerEncoderLayer", "--arg", "8", "--arg", "nhead=2"]
    main(["safe", *block, "--arg", "batch_first=True", "--input", "2x3x8"])
    assert "is safe to checkpoint as far as it was tried: reentrant, non_reentrant" in capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        main(["safe", "torch.nn:BatchNorm1d", "--arg", "4", "--input", "3x4"])
    assert ended.value.code == 1
    assert "running_mean" in capsys.readouterr().out


def test_the_command_line_says_what_is_missing(capsys):
    from rematch.__main__ import main

    for arguments, says in (
        (["torch.nn:Linear", "--input", "3x4"], "give its arguments with --arg"),
        (["torch.nn:Linear", "--arg", "4"], "--input is needed"),
        (["torch.nn:Linear", "--input", "three"], "extents like 4x16"),
        (["torch.nn:Lineal", "--input", "3x4"], "has no Lineal"),
        (["torch.nn:Linear", "--arg", "7", "--arg", "7", "--input", "3x4"], "fails without checkpointing, too"),
    ):
        with pytest.raises(SystemExit) as ended:
            main(["safe", *arguments])
        assert ended.value.code == 2
        assert says in capsys.readouterr().err


def test_the_command_line_passes_keywords_and_prints_json(capsys):
    from rematch.__main__ import main

    attention = ["torch.nn:MultiheadAttention", "--arg", "8", "--arg", "2"]
    inputs = [word for name in ("query", "key", "value") for word in ("--input", f"{name}=3x1x8")]
    main(["safe", *attention, *inputs, "--variant", "non_reentrant", "--json"])
    verdict = json.loads(capsys.readouterr().out)
    assert verdict["safe"] and list(verdict["tried"]) == ["non_reentrant"]


class Conv(nn.Module):
    """A block that is wrong: its norm counts twice."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)

    def forward(self, x):
        return self.norm(self.linear(x))


CONV = Conv()


def through_a_global(x):
    return CONV(x)


def targets_that_hide_a_module():
    conv = Conv()
    return [lambda x: conv(x), conv.forward, functools.partial(conv), functools.partial(through_a_global)]


@pytest.mark.parametrize("which", range(4), ids=["closure", "method", "partial", "global"])
def test_a_function_is_looked_into(which):
    (finding,) = findings(targets_that_hide_a_module()[which], X)
    assert finding.cause.name == "batch-norm"


def test_what_is_behind_a_function_is_left_as_it_was():
    conv = Conv()
    before = {name: t.clone() for name, t in conv.state_dict().items()}
    findings(lambda x: conv(x), X)
    findings(through_a_global, X)
    for name, t in conv.state_dict().items():
        assert torch.equal(t, before[name]), name
    assert all(p.grad is None for p in (*conv.parameters(), *CONV.parameters()))
    assert CONV.norm.num_batches_tracked == 0
    assert not conv._forward_hooks and not conv._forward_pre_hooks


def test_gradients_and_attributes_of_the_module_are_left_as_they_were():
    module = nn.Linear(4, 4)
    gradient = torch.full((4, 4), 2.0)
    module.weight.grad = gradient
    module.note = ["mine"]
    findings(module, X)
    assert module.weight.grad is gradient and torch.equal(gradient, torch.full((4, 4), 2.0))
    assert module.note == ["mine"] and module.weight.requires_grad


def test_what_is_no_function_is_refused_with_a_sentence():
    with pytest.raises(TypeError, match="expects a module or a function, got str"):
        judge("nn.Linear", X)


def test_keywords_and_structures_are_passed_as_they_are():
    @dataclasses.dataclass
    class Batch:
        x: torch.Tensor
        scale: float

    class Takes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(4, 4)

        def forward(self, batch, *, mask=None, options=None):
            y = self.inner(batch.x) * batch.scale
            return {"y": y if mask is None else y * mask, "names": list(options)}

    verdict = judge(
        Takes(), Batch(X, 2.0), kwargs={"mask": torch.ones(3, 4), "options": {"a": 1}}, variants="non_reentrant"
    )
    assert verdict.safe, verdict.report()


def test_modes_stay_as_the_module_arrives():
    conv = Conv()
    conv.norm.eval()
    assert_checkpoint_safe(conv, X)
    assert conv.training and not conv.norm.training


def test_randomness_of_the_host_is_tried_with_several_seeds():
    class Depth(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(4, 4)

        def forward(self, x):
            return x + self.inner(x) if random.random() < 0.8 else x * 1.0

    for seed in (0, 1, 2):
        assert [finding.cause.name for finding in findings(Depth(), X, seed=seed)] == ["python-random"]


def test_a_fix_can_be_verified():
    """The remedy for BatchNorm that PyTorch's options allow: no update in the recomputation."""
    conv = Conv()

    class Frozen:
        def __enter__(self):
            conv.norm.momentum, self.momentum = 0.0, conv.norm.momentum
            conv.norm.num_batches_tracked, self.count = torch.zeros(()), conv.norm.num_batches_tracked

        def __exit__(self, *_):
            conv.norm.momentum, conv.norm.num_batches_tracked = self.momentum, self.count

    verdict = judge(conv, X, context_fn=lambda: (contextlib.nullcontext(), Frozen()))
    assert verdict.safe, verdict.report()
    assert list(verdict.tried) == ["non_reentrant"]


def test_a_difference_can_be_accepted():
    assert judge(Conv(), X, ignore=["buffer norm.running_*", "buffer norm.num_batches_tracked"]).safe
    assert not judge(Conv(), X, ignore=["buffer norm.running_*"]).safe


def test_a_module_that_cannot_be_put_back_is_made_anew():
    def make():
        class Reads(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.rows = (float(i) for i in range(1, 100))

            def forward(self, x):
                return (x * next(self.rows)).tanh()

        return Reads()

    with pytest.raises(RuntimeError, match="rows cannot be put back.*make="):
        judge(make(), X)
    assert not judge(None, X, make=make).safe
