"""Scripts of findings that are counts, and of checkpoint functions of a user's own."""

import sys

import pytest
from cases import chain, run_of, segment

from rematch.frameworks.pytorch.test_export import TRAINABLE, ask, finding, shown, trial
from rematch.frameworks.pytorch.test_user_checkpoint import PREAMBLE

FUNCTIONS = (
    PREAMBLE
    + """
def runs_twice(function, *inputs, **options):
    function(*inputs)
    return checkpoint(function, *inputs, **options)

held = []

def holds_a_graph(function, *inputs, **options):
    held.append(function(*inputs))
    return checkpoint(function, *inputs, **options)

def detaches(function, *inputs, **options):
    return checkpoint(function, *inputs, **options).detach()

class Twice(Forgets):
    @staticmethod
    def backward(ctx, gradient):
        for _ in range(2):
            Forgets.backward(ctx, gradient / 2)
        return None, None

def goes_back_twice(function, x, **options):
    return Twice.apply(function, x)
"""
)


@pytest.fixture
def mine(start, tmp_path):
    """Starts the subject that checkpoints by one of FUNCTIONS."""
    (tmp_path / "mine.py").write_text(FUNCTIONS)
    return lambda name: start(sys.executable, "-m", "rematch", f"{tmp_path}/mine.py:{name}")


def test_a_layer_that_draws_less_often_is_shown_by_how_often_it_runs(torch_subject):
    nested = [segment(2, 3, arguments="emptied")]
    plan = {"segments": [segment(0, 3, nested=nested)]}
    case = chain("linear", {"kind": "gaussian_noise", "p": 0.5}, "duplicate", plan=plan)
    at = "step 0, microbatch 0, layer 1 (gaussian_noise), draws"
    _, out = shown(torch_subject, {**case, "input": [1, 1]}, finding("dropout-masks", 2, 1, at))
    assert "runs of layer 1\n  expected      2\n  checkpointed  1" in out


def checkpointed(subject, case):
    subject.record(**run_of(case))
    return subject.record(checkpointed=True)


def at(law, place, expected, got):
    return finding(law, expected, got, f"step 0, microbatch 0, {place}")


def block(*layers, **rest):
    return chain(*layers, plan={"segments": [segment(0, len(layers))]}, **rest)


def test_a_loss_behind_what_passes_through_a_segment_recomputes_it(torch_subject):
    layers = [{"kind": "split", "features": 1}, "relu"]
    plan = {"segments": [segment(1, 2, "reentrant")]}
    protocol = {"auxiliary_losses": True, "input_requires_grad": True, "backwards": 2}
    case = chain(*layers, input=(1, 2), plan=plan, protocol=protocol)
    runs = checkpointed(torch_subject, case)["executions"][1]["count"]
    # Once for each backward of the first loss would do.
    assert runs == 5
    found = at("executions", "layer 1 (relu), checkpointed run", 3, runs)
    assert f"checkpointed  {runs}\n" in shown(torch_subject, case, found)[1]


def test_a_layer_that_runs_too_often_shows(mine):
    subject, case = mine("runs_twice"), block("linear", "tanh", protocol=TRAINABLE)
    runs = checkpointed(subject, case)["executions"][0]["count"]
    found = at("executions", "layer 0 (linear), checkpointed run", 2, runs)
    out = shown(subject, case, found)[1]
    assert f"runs of layer 0\n  expected      2\n  checkpointed  {runs}\n" in out


def test_a_hook_that_fires_too_often_shows(mine):
    subject, case = mine("goes_back_twice"), block("linear", protocol=TRAINABLE)
    fired = checkpointed(subject, case)["hooks"][0]["count"]
    found = at("hooks", "parameter 0 (layer 0 linear weight)", 1, fired)
    assert fired == 2
    assert "DIFFERENT: calls of the hook of" in shown(subject, case, found)[1]


@pytest.mark.parametrize("place", ["model output 0", "layer 1 (tanh), output 0"])
def test_an_output_that_requires_no_grad_shows(mine, place):
    plan = {"segments": [segment(0, 1)]}
    case = chain("linear", "tanh", plan=plan, protocol={"backwards": 1})
    subject = mine("detaches")
    found = at("requires-grad-map", place, "requires grad", "requires no grad")
    assert "checkpointed  False" in shown(subject, case, found)[1]


def test_bytes_that_no_checkpoint_saves_show(mine):
    subject = mine("plain")
    case = block({"kind": "linear", "features": 2}, "tanh", input=(2, 2), protocol=TRAINABLE)
    record = checkpointed(subject, case)
    saved = next(b["saved"] for b in record["bytes"] if b["moment"] == "after_forward")
    found = at("saved-bytes", "after the forward of the checkpointed run", saved - 16, saved)
    assert f"  checkpointed  {saved}\n" in shown(subject, case, found)[1]


def test_bytes_that_a_backward_leaves_show(mine):
    subject = mine("holds_a_graph")
    plan = {"segments": [segment(1, 2)]}
    layers = [{"kind": "linear", "features": 2}] * 2
    case = chain(*layers, input=(2, 2), plan=plan)
    record = checkpointed(subject, case)
    saved = next(b for b in record["bytes"] if b["moment"] == "after_backward").get("saved", 0)
    assert saved > 0
    found = at("bytes-after-backward", "saved bytes of the checkpointed run", 0, saved)
    assert f"  checkpointed  {saved}\n" in shown(subject, case, found)[1]


def test_a_scope_that_an_error_leaves_open_shows(mine):
    subject = mine("tells_no_scope_of_errors")
    case = block("tanh", protocol={**TRAINABLE, "inject": "forward_throws"}, input=(1, 1))
    found = finding("injected-failures", "as before", "changed: hooks on saved tensors")
    _, out = shown(subject, case, found, **trial(case))
    assert out.splitlines()[-1] == "DIFFERENT: hooks on saved tensors"


def test_a_gradient_that_a_user_s_function_loses_shows(mine):
    subject, case = mine("loses_the_input_gradient"), block("linear", protocol=TRAINABLE)
    _, out = shown(subject, case, finding("absent-gradients"))
    assert out.splitlines()[-1] == "DIFFERENT: x.grad is not None"


def test_a_count_that_is_right_is_unsupported(torch_subject):
    found = at("executions", "layer 0 (tanh), checkpointed run", 1, 3)
    answer = ask(torch_subject, block("tanh", protocol=TRAINABLE), found)
    assert "no script was found" in answer["unsupported"]
