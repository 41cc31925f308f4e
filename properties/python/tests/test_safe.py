"""assert_checkpoint_safe(), on modules that are safe and on those that are not."""

import contextlib
import functools
import json
import queue
import random
import time
from collections import OrderedDict

import numpy as np
import planted_outside  # noqa: F401
import pytest
import torch
from modules import causes, maker, planted_as
from planted_states import counts
from torch import nn

from rematch.__main__ import main
from rematch.safe import assert_checkpoint_safe, findings, judge, judge_model

X = torch.randn(3, 4, generator=torch.Generator().manual_seed(2))


def conv():
    """A block that is wrong: its norm counts twice."""
    return nn.Sequential(OrderedDict(linear=nn.Linear(4, 4), norm=nn.BatchNorm1d(4)))


def report_of(module, *inputs, **options):
    with pytest.raises(AssertionError) as caught:
        assert_checkpoint_safe(module, *(inputs or (X,)), **options)
    return str(caught.value)


def test_a_buffer_that_advances_is_reported_with_the_operator_that_writes_it():
    text = report_of(counts())
    assert "counts is not safe to checkpoint" in text
    assert "buffer calls: element 0 is 2, in the plain run 1" in text
    assert "aten.add_.Tensor writes to calls in the recomputation, too" in text
    assert "use_reentrant=True and False, one training step" in text
    assert "Guard the update with a flag" in text and "context_fn" in text


def test_batch_norm_is_told_from_other_buffers():
    text = report_of(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)))
    assert "buffer 1.running_mean" in text
    assert "aten.native_batch_norm.default in 1 writes to 1.running_mean" in text
    assert "GroupNorm" in text


@pytest.mark.parametrize(("module", "name"), [("NumpyNoise", "NumPy"), ("PythonNoise", "Python")])
def test_randomness_of_others_is_named(module, name):
    text = report_of(planted_as(module)())
    assert f"preserves PyTorch's default generators only, not {name}'s" in text
    assert "gradient of input 0" in text


def test_a_generator_of_the_modules_own_is_state_that_the_forward_changes():
    def keeps(self, x):
        generator = torch.Generator()
        generator.set_state(self.state)
        noise = torch.rand(x.shape, generator=generator)
        self.state = generator.get_state()
        return torch.sin(x * noise)

    text = report_of(maker(keeps, None, nn.Module, state=torch.Generator().manual_seed(1).get_state())())
    assert "a generator of its own" in text
    assert "aten.rand" in text and "computes something else" in text


def test_a_result_may_be_written_in_place_but_an_input_may_not():
    in_place = planted_as("InPlace")
    assert findings(nn.Sequential(nn.Linear(4, 4), in_place()), X) == []
    (finding,) = findings(in_place(), X)
    assert (finding.cause.name, finding.about) == ("argument-written", "input 0")


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


@pytest.mark.parametrize(
    ("module", "error"),
    [
        (nn.Linear(7, 7), "fails without checkpointing, too"),
        (
            lambda x: x * (torch.Generator().seed() % 1000),
            "two plain runs from the same seeds differ.*randomness of the system",
        ),
    ],
)
def test_a_module_that_fails_or_differs_from_itself_without_checkpointing_is_not_judged(module, error):
    with pytest.raises(RuntimeError, match=error):
        findings(module, X)


def test_a_module_that_reads_a_clock_is_judged_with_one_that_repeats():
    clock = time.perf_counter_ns
    text = report_of(lambda x: x * (time.perf_counter_ns() % 1000))
    assert "clock-or-entropy: The forward computes with time.perf_counter_ns()" in text
    assert "replaced by numbers that repeat" in " ".join(text.split())
    assert time.perf_counter_ns is clock


def test_the_module_and_all_random_states_are_left_as_they_were():
    module = counts()
    before = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()
    findings(module, X)
    assert module.calls == 0 and module.inner.weight.grad is None and module.training
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (np.random.get_state()[1].tolist(), random.getstate()) == before[1:]


def test_the_command_line_prints_the_report(capsys):
    block = ["torch.nn:TransformerEncoderLayer", "--arg", "8", "--arg", "nhead=2"]
    main(["safe", *block, "--arg", "batch_first=True", "--input", "2x3x8"])
    assert "is safe to checkpoint as far as it was tried: reentrant, non_reentrant" in capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        main(["safe", "torch.nn:BatchNorm1d", "--arg", "4", "--input", "3x4"])
    assert ended.value.code == 1
    assert "running_mean" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("torch.nn:Linear --input 3x4", "give its arguments with --arg"),
        ("torch.nn:Linear --arg 4", "--input is needed"),
        ("torch.nn:Linear --input three", "extents like 4x16"),
        ("torch.nn:Lineal --input 3x4", "has no Lineal"),
        ("torch.nn:Linear --arg 7 --arg 7 --input 3x4", "fails without checkpointing, too"),
        ("torch.nn:ReLU --input 99999999x99999999", "--input 99999999x99999999: "),
        ("torch.nn:ReLU --input 99999999999999999999x2", "--input 99999999999999999999x2: "),
        ("torch.nn:ReLU --input x=-1x2", "--input x=-1x2: "),
        ("torch.nn:MultiheadAttention --arg 8 --arg 3 --input 3x4", "embed_dim must be divisible by num_heads"),
        (f"{__file__}:through_a_global --model", "missing 1 required positional argument"),
        (f"{__file__}:no_model --model --input 3x4", "a module expected, or a function that returns one, got int"),
        (f"{__file__}:fails --model", "it raises KeyError: 'who'"),
        (f"{__file__}:of_three --model", "a model, (model, batch) or (model, args, kwargs) expected"),
        (f"{__file__}:a_model --model", "--input is needed"),
        ("torch.nn:ReLU --input 3x4 --model --variant non", "invalid choice"),
    ],
)
def test_what_cannot_be_judged_is_told_in_a_sentence(capsys, words, says):
    with pytest.raises(SystemExit) as ended:
        main(["safe", *words.split()])
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert says in told and "Traceback" not in told


def no_model():
    return 7


def fails():
    raise KeyError("who")


def of_three():
    return a_model(), 1, 2


def a_model():
    return nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))


def with_a_batch():
    return a_model(), torch.randn(3, 4)


def test_a_whole_model_may_come_from_a_function_with_its_batch(capsys):
    main(["safe", f"{__file__}:with_a_batch", "--model"])
    main(["safe", f"{__file__}:a_model", "--model", "--input", "3x4"])
    assert capsys.readouterr().out.count("The blocks of Sequential are safe") == 2


@pytest.mark.parametrize("text", ["def f(:", "1 / 0", "raise OSError('no')"])
def test_a_script_that_fails_is_told_in_a_sentence(capsys, tmp_path, text):
    script = tmp_path / "wrong.py"
    script.write_text(f"\n{text}\n")
    with pytest.raises(SystemExit) as ended:
        main(["safe", f"{script}:f", "--input", "2"])
    told = capsys.readouterr().err
    assert ended.value.code == 2 and "cannot be loaded" in told and "line 2" in told and "Traceback" not in told


def test_a_verdict_tells_all_that_it_abbreviates_where_it_is_asked(capsys):
    class Writes(nn.Module):
        def __init__(self):
            super().__init__()
            for i in range(8):
                self.register_buffer(f"sum{i}", torch.zeros(4))

        def forward(self, x):
            for buffer in self.buffers():
                buffer += x.detach().sum(0)
            return x.sin()

    verdict = judge(Writes(), X)
    short, long = str(verdict), verdict.text(verbose=True)
    assert " more" in short and " more" not in long.replace("once more", "")
    assert all(f"sum{i}" in long for i in range(8)) and "sum6" not in short
    assert verdict.text() == short
    model = judge_model(nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(3))), X)
    assert "0 and 2 more" in str(model) and "0, 1, 2" in model.text(verbose=True)
    with pytest.raises(SystemExit):
        main(["safe", "torch.nn:BatchNorm1d", "--arg", "4", "--input", "3x4", "--verbose"])
    assert " more\n" not in capsys.readouterr().out


def test_the_command_line_passes_keywords_and_prints_json(capsys):
    inputs = [word for name in ("query", "key", "value") for word in ("--input", f"{name}=3x1x8")]
    attention = ["torch.nn:MultiheadAttention", "--arg", "8", "--arg", "2", *inputs]
    main(["safe", *attention, "--variant", "non_reentrant", "--json"])
    verdict = json.loads(capsys.readouterr().out)
    assert verdict["safe"] and list(verdict["tried"]) == ["non_reentrant"]


CONV = conv()


def through_a_global(x):
    return CONV(x)


HIDES = {
    "closure": lambda module: lambda x: module(x),
    "method": lambda module: module.forward,
    "partial": functools.partial,
    "global": lambda _: functools.partial(through_a_global),
}


@pytest.mark.parametrize("how", HIDES)
def test_a_function_is_looked_into(how):
    assert causes(judge(HIDES[how](conv()), X)) == ["batch-norm"]


def test_what_is_behind_a_function_is_left_as_it_was():
    module = conv()
    before = {name: t.clone() for name, t in module.state_dict().items()}
    findings(lambda x: module(x), X)
    findings(through_a_global, X)
    for name, t in module.state_dict().items():
        assert torch.equal(t, before[name]), name
    assert all(p.grad is None for p in (*module.parameters(), *CONV.parameters()))
    assert CONV.norm.num_batches_tracked == 0
    assert not module._forward_hooks and not module._forward_pre_hooks


def test_gradients_and_attributes_of_the_module_are_left_as_they_were():
    module = nn.Linear(4, 4)
    module.weight.grad = gradient = torch.full((4, 4), 2.0)
    module.note = ["mine"]
    findings(module, X)
    assert module.weight.grad is gradient and torch.equal(gradient, torch.full((4, 4), 2.0))
    assert module.note == ["mine"] and module.weight.requires_grad


def test_what_is_no_function_is_refused_with_a_sentence():
    with pytest.raises(TypeError, match="expects a module or a function, got str"):
        judge("nn.Linear", X)


def test_modes_stay_as_the_module_arrives():
    module = conv()
    module.norm.eval()
    assert_checkpoint_safe(module, X)
    assert module.training and not module.norm.training


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_randomness_of_the_host_is_tried_with_several_seeds(seed):
    assert causes(judge(planted_as("StochasticDepth")(), X, seed=seed)) == ["python-random"]


def test_a_fix_can_be_verified():
    """The remedy for BatchNorm that PyTorch's options allow: no update in the recomputation."""
    module = conv()
    norm = module.norm

    class Frozen:
        def __enter__(self):
            norm.momentum, self.momentum = 0.0, norm.momentum
            norm.num_batches_tracked, self.count = torch.zeros(()), norm.num_batches_tracked

        def __exit__(self, *_):
            norm.momentum, norm.num_batches_tracked = self.momentum, self.count

    verdict = judge(module, X, context_fn=lambda: (contextlib.nullcontext(), Frozen()))
    assert verdict.safe, verdict.report()
    assert list(verdict.tried) == ["non_reentrant"]


def test_a_difference_can_be_accepted():
    assert judge(conv(), X, ignore=["buffer norm.running_*", "buffer norm.num_batches_tracked"]).safe
    assert not judge(conv(), X, ignore=["buffer norm.running_*"]).safe


def test_a_module_that_cannot_be_put_back_is_made_anew():
    def reads(self, x):
        return (x * next(self.rows)).tanh()

    make = maker(reads, None, nn.Module, rows=lambda: (float(i) for i in range(1, 100)))
    with pytest.raises(RuntimeError, match="rows cannot be put back.*make="):
        judge(make(), X)
    assert not judge(None, X, make=make).safe


def test_a_plain_run_that_does_not_end_is_not_tried(monkeypatch):
    monkeypatch.setattr("rematch.safe.target_run.PATIENCE", 0.5)
    layer, waiting = nn.Linear(4, 4), queue.SimpleQueue()

    def made():
        while not waiting.empty():
            waiting.get()
        waiting.put(2.0)
        return lambda x: layer(x).tanh() * waiting.get()

    verdict = judge(None, torch.randn(3, 4), make=made)
    assert any(why.startswith("fails without checkpointing, too: DoesNotEnd") for _, why in verdict.not_tried), verdict


def test_integers_that_may_not_change_places_stay_in_all_forwards():
    def packs(self, x, extents):
        """Rows of these extents; others do not fit."""
        rows, columns = extents[0].tolist()
        return self.inner(x[: 3 * rows].view(rows, 3, 4)).tanh().sum((0, 1)) + x.view(columns, -1, 4).sum((0, 1))

    verdict = judge(maker(packs, None)(), torch.randn(6, 4), torch.tensor([[2, 3]]), variants=["non_reentrant"])
    assert "two steps of an optimizer" in verdict.tried["non_reentrant"], verdict


def test_what_callers_set_and_no_trial_can_set_otherwise_is_said_by_name():
    class Chooses(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers, self.active, self.mask = nn.ModuleDict({"a": nn.Linear(4, 4)}), "a", None

        def activate(self, name):
            self.active = name

        def forward(self, x):
            y = self.layers[self.active](x)
            return y if self.mask is None else y * self.mask

    not_tried = judge(Chooses(), X).not_tried
    assert ("active set between a forward and its backward", "no other value is known") in not_tried
    assert ("mask set between a forward and its backward", "it is None") in not_tried
