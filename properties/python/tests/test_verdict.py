"""What a verdict of judge() rests on: what it counts, sees, rules out and leaves open, compiled or not."""

import json
import os
import tempfile

import pytest
import torch
from modules import causes, linear, maker
from planted_states import freezes_itself, schedules
from torch import nn

from rematch.safe import assert_checkpoint_safe, judge
from rematch.safe.causes import ruled_out
from rematch.safe.compare import changes
from rematch.safe.evidence import Evidence, Traced
from rematch.safe.scenarios import FIRST, NON_REENTRANT
from rematch.safe.state import BUFFER, GLOBAL, Leaf
from rematch.safe.target_run import Seen

X = torch.linspace(-1, 1, 12).reshape(3, 4)


def test_the_verdict_says_what_it_rests_on():
    verdict = judge(nn.Linear(4, 4), X)
    text = str(verdict)
    assert "safe to checkpoint as far as it was tried" in text
    assert "not tried   only the first input requires grad: it has one input" in text
    assert "not seen    what a forward writes outside of Python and PyTorch" in text
    assert "one training step" in verdict.tried["reentrant"]
    as_data = json.loads(verdict.json())
    assert as_data["safe"] and as_data["saved_bytes"]["plain"] == X.nbytes


def test_a_context_that_the_caller_leaves_before_the_backward_can_be_asked_about():
    class Coarse(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            made = func(*args, **(kwargs or {}))
            return made * 2 if func is torch.sigmoid else made

    def gate(x):
        return torch.sigmoid(x).tanh()

    assert judge(gate, X).safe
    verdict = judge(gate, X, within=Coarse)
    assert set(causes(verdict)) == {"context-closed"}, verdict.report()


def test_what_differs_in_the_last_half_of_a_double_is_seen():
    def drifts(self, x):
        self.calls += 1
        return (x * (1 + self.calls * 1e-9)).tanh()

    verdict = judge(maker(drifts, None, calls=0)(), X.double(), variants="non_reentrant")
    assert any(finding.computed for finding in verdict.findings), verdict.report()


def test_a_class_that_a_function_closes_over_is_looked_into():
    kept = []

    class Reads(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            kept.append(x.detach().clone())
            return x.sin()

        @staticmethod
        def backward(ctx, gradient):
            return gradient * len(kept)

    # tanh() saves its result, for which the region runs again.
    verdict = judge(lambda x: Reads.apply(x).tanh(), X, variants="non_reentrant")
    assert causes(verdict) == ["closure-changed"], verdict.report()
    assert kept == []


def test_what_was_ruled_out_is_only_what_was_found_unchanged():
    def execution(calls, dtype):
        entry = {"calls": Leaf(GLOBAL, calls), "mean": Leaf(BUFFER, 0)}
        return Traced(calls > 0, False, entry, {"grad mode": True, "the default dtype": dtype})

    seen = Seen()
    text = ruled_out(Evidence(None, FIRST, NON_REENTRANT, seen, seen, [], execution(0, "a"), execution(1, "b")))
    assert "unchanged when the recomputation began: random states, parameters, buffers" in text
    assert "globals" not in text
    assert "changed: calls; modes of PyTorch that differ: the default dtype" in text


def test_a_partly_frozen_module_is_safe_with_a_reservation():
    module = nn.Sequential(nn.Linear(4, 4).requires_grad_(False), nn.Linear(4, 4))
    verdict = judge(module, X)
    assert verdict.safe
    assert "but NOT with use_reentrant=True behind frozen weights" in verdict.headline()
    assert judge(module, X, variants="non_reentrant").headline().endswith("non_reentrant")


class RoundsAtRandom(torch.autograd.Function):
    """Under autocast its gradient is never the same."""

    @staticmethod
    def forward(ctx, x):
        ctx.cast = torch.is_autocast_enabled("cpu")
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * (1 + int.from_bytes(os.urandom(4), "big") / 2**32) if ctx.cast else gradient


def test_what_two_plain_runs_of_a_situation_do_not_agree_on_is_not_held_against_a_module():
    block = nn.Linear(4, 4)
    verdict = judge(lambda x: RoundsAtRandom.apply(block(x)), X)
    assert verdict.safe, verdict
    assert ("gradient of block.weight, autocast to bfloat16", "it differs between two plain runs") in verdict.not_tried


def test_tensors_that_exchange_their_memory_get_their_own_back():
    def exchanges(self, x):
        a, b = self.inner.weight, self.other.weight
        a.data, b.data = b.data, a.data
        return self.inner(x).tanh() + self.other(x)

    module = maker(exchanges, None, other=linear)()
    before = [(p.data_ptr(), p.detach().clone()) for p in module.parameters()]
    judge(module, X)
    for parameter, (address, value) in zip(module.parameters(), before, strict=True):
        assert parameter.data_ptr() == address and torch.equal(parameter, value)


def test_every_element_of_a_sparse_gradient_is_compared():
    def rows(self, i):
        self.calls += 1
        scale = torch.ones(len(i), 1)
        scale[700] += 1e-4 * self.calls
        return self.table(i) * scale

    torch.manual_seed(0)
    module = maker(rows, None, nn.Module, table=lambda: nn.Embedding(2000, 2, sparse=True), calls=0)()
    verdict = judge(module, torch.arange(1500), variants=["non_reentrant"])
    assert causes(verdict) == ["counter"]
    assert verdict.findings[0].what.startswith("gradient of table.weight: element 1400 is ")


def test_how_many_parameters_train_is_asked_before_a_forward_freezes_them():
    module = nn.Sequential(nn.Linear(4, 4), freezes_itself())
    reasons = [why for _, why in judge(module, X).not_tried]
    assert "it has fewer than three parameters" not in reasons


def test_each_variant_has_its_own_symptom():
    def keeps(self, x):
        if self.known is None:
            self.known = self.inner(x).exp()
        return self.inner(x).tanh() * self.known

    (finding,) = judge(maker(keeps, None, known=None)(), X).findings
    assert finding.cause.name == "cache-filled"
    text = " ".join(finding.text().split())
    assert "differs use_reentrant=True: no error, but gradient of " in text
    assert "differs use_reentrant=False: CheckpointError: " in text
    assert finding.to_json()["differs_by_variant"]["non_reentrant"].startswith("CheckpointError")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_numbers_that_differ_are_told_with_the_digits_that_differ(dtype):
    a = torch.tensor([-0.07884748], dtype=dtype)
    (change,) = changes({"y": Leaf(BUFFER, a)}, {"y": Leaf(BUFFER, a.nextafter(torch.zeros(1, dtype=dtype)))})
    got, had = change.text.removeprefix("buffer y: element 0 is ").split(" (")[0].split(", before ")
    assert float(got) != float(had)


@pytest.mark.parametrize(
    ("other", "text"),
    [
        (torch.ones(2).double(), "float64 (2,), before float32 (2,)"),
        (torch.ones(1, 2), "float32 (1, 2), before float32 (2,)"),
        (torch.ones(2).to_sparse(), "sparse_coo, before strided"),
    ],
)
def test_equal_elements_of_another_dtype_shape_or_layout_differ(other, text):
    (change,) = changes({"y": Leaf(BUFFER, torch.ones(2))}, {"y": Leaf(BUFFER, other)})
    assert change.text == f"buffer y: {text}"


def test_what_seldom_differs_between_plain_runs_is_not_held_against_a_module():
    """Its first checkpointed run is another, as one with a thread pool is now and then."""

    def flaky(self, x):
        os.write(into, b".")
        self.order = "other" if os.fstat(into).st_size in (3, 4) else "usual"
        return x.tanh()

    with tempfile.TemporaryFile() as file:
        into = file.fileno()
        assert judge(maker(flaky, None, nn.Module)(), X).safe


def a_backend_that_doubles_what_is_checkpointed(graph, inputs):
    wrong = any("checkpoint" in str(node.target) for node in graph.graph.nodes)
    return (lambda *given: [2 * out for out in graph(*given)]) if wrong else graph


def test_a_compiled_step_is_tried_on_request():
    torch.manual_seed(0)
    block = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.3), nn.Linear(8, 4))
    verdict = judge(block, torch.randn(2, 4), compile="aot_eager")
    assert verdict.safe and "compiled by aot_eager" in verdict.tried["non_reentrant"]
    verdict = judge(block, torch.randn(2, 4), compile=a_backend_that_doubles_what_is_checkpointed)
    assert causes(verdict) == ["compiler"]


def test_what_differs_without_the_compiler_is_not_its_fault():
    verdict = judge(schedules(), torch.randn(2, 4), compile="aot_eager", variants="non_reentrant")
    assert causes(verdict) == ["counter"]
    assert "compiled by aot_eager" in [scenario.name for _, scenario in verdict.findings[0].shown]


def test_each_variant_is_told_with_the_scenario_that_shows_it():
    def takes(self, x):
        y = self.inner(x).tanh()
        # Early stop comes before this.
        self.rest.pop()
        return y

    text = judge(maker(takes, None, rest=[float(n) for n in range(200)])(), torch.randn(3, 4)).report()
    assert "use_reentrant=True, one training step; use_reentrant=False, early stop off\n" in text, text


def test_what_is_saved_may_be_promised():
    block, x = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8)), torch.randn(4, 8)
    assert assert_checkpoint_safe(block, x, saves=0.5).saved == {"plain": 256, "reentrant": 128, "non_reentrant": 128}
    with pytest.raises(
        AssertionError, match="reentrant holds 128 of 256 B for the backward; at most 102 were promised"
    ):
        assert_checkpoint_safe(block, x, saves=0.4)
