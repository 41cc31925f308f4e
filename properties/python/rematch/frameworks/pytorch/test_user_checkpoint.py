"""A checkpoint() of a user's own, in three lines, and what the records say when it is wrong."""

import sys
import textwrap

import pytest
import torch
from cases import TRAINABLE, chain, differing, observed, run_of, segment
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from rematch.frameworks.pytorch.model import HAS_DEFAULT
from rematch.frameworks.pytorch.trial import left_behind, put_back

THREE_LINES = """
from rematch import serve
from rematch.pytorch import TorchSubject
serve(TorchSubject("mine", checkpoint={function}))
"""
PREAMBLE = """
import torch
from torch.utils.checkpoint import checkpoint

def faithful(function, *inputs, **options):
    return checkpoint(function, *inputs, **options)

def draws_anew(function, *inputs, **options):
    return checkpoint(function, *inputs, **{**options, "preserve_rng_state": False})

class Forgets(torch.autograd.Function):
    @staticmethod
    def forward(ctx, function, x):
        ctx.function = function
        ctx.save_for_backward(x)
        with torch.no_grad():
            return function(x)

    @staticmethod
    def backward(ctx, gradient):
        x = ctx.saved_tensors[0].detach()
        with torch.enable_grad():
            torch.autograd.backward(ctx.function(x), gradient)
        return None, None

def loses_the_input_gradient(function, x, **options):
    return Forgets.apply(function, x)

class Keeps(Forgets):
    @staticmethod
    def backward(ctx, gradient):
        ctx.kept = ctx.saved_tensors
        return Forgets.backward(ctx, gradient)

def keeps_its_input(function, x, **options):
    return Keeps.apply(function, x)

hoard = []

def hoards(function, *inputs, **options):
    def run(*inputs):
        outputs = function(*inputs)
        hoard.append(outputs.detach())
        return outputs
    return checkpoint(run, *inputs, **options)

def hoards_recomputed(function, *inputs, **options):
    runs = []
    def run(*inputs):
        outputs = function(*inputs)
        runs.append(outputs.detach())
        del runs[:-1]
        return outputs
    with torch.utils.checkpoint.set_checkpoint_early_stop(False):
        return checkpoint(run, *inputs, **options)

def plain(function, *inputs, **options):
    return function(*inputs)

def scope():
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        yield

def tells_no_scope_of_errors(function, *inputs, **options):
    within = scope()
    next(within)
    outputs = function(*inputs)
    next(within, None)
    return outputs

def leaves_scopes_open(function, *inputs, **options):
    torch.set_autocast_cache_enabled(False)
    torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t).__enter__()
    return checkpoint(function, *inputs, **options)

def fails(function, *inputs, **options):
    raise MemoryError("no room")
"""
OWN = """
from functools import partial
from rematch.frameworks.pytorch import model

real = model.checkpoint

def stops_late(function=None, *inputs, early_stop=False, **options):
    return real(function, *inputs, early_stop=early_stop, **options)

def loses_keywords(function, *inputs, **options):
    calls = []
    def run(*inputs, **keywords):
        calls.append(0)
        return function(*inputs, **(keywords if len(calls) == 1 else {}))
    return real(run, *inputs, **options)

def loses_constants(function, *inputs, **options):
    return real(function, *(t for t in inputs if isinstance(t, torch.Tensor)), **options)

def wants_tensors_back(function, *inputs, **options):
    returned = real(function, *inputs, **options)
    for t in returned if isinstance(returned, tuple) else (returned,):
        t.shape
    return returned

def is_no_decorator(function, *inputs, **options):
    return real(function, *inputs, **options)
"""
AS_OWN = """
model.checkpoint = {function}
"""
MASKED = chain(
    "linear", "dropout", "linear", plan={"segments": [segment(1, 3)]}, protocol={"input_requires_grad": True}
)


def own(start_python, function, case):
    """The record of a checkpointed run in which that function stands for PyTorch's checkpoint()."""
    start = OWN + AS_OWN.format(function=function) + THREE_LINES.format(function=function)
    harness = start_python(PREAMBLE + start)
    return harness.record(**run_of(case), checkpointed=True)


@pytest.fixture
def records(start_python):
    """Both records of a case under a function of the preamble."""

    def run(function, case=MASKED):
        harness = start_python(PREAMBLE + THREE_LINES.format(function=function))
        assert harness.hello()["name"] == "mine"
        return harness.both(run_of(case))

    return run


def test_three_lines_make_a_subject_of_a_checkpoint_function(records):
    plain, checkpointed = records("faithful")
    assert not differing(checkpointed)
    assert [e["count"] for e in checkpointed["executions"]] == [1, 2, 2]
    assert plain["draws"][0]["hash"] == checkpointed["draws"][1]["hash"]


def test_a_checkpoint_function_that_is_served_has_what_pytorch_is_known_to_do(start_python):
    assert start_python(PREAMBLE + THREE_LINES.format(function="faithful")).hello()["profile"] == "pytorch"


def test_a_checkpoint_that_draws_a_new_mask_gives_other_records(records):
    plain, checkpointed = records("draws_anew")
    first, again = checkpointed["draws"]
    assert first["hash"] == plain["draws"][0]["hash"] != again["hash"]
    assert differing(checkpointed)
    assert checkpointed["streams"] != plain["streams"]


def test_a_checkpoint_that_loses_a_gradient_leaves_it_absent(records):
    plain, checkpointed = records("loses_the_input_gradient")
    key = ("input_gradient", 0, 0, 0)
    assert observed(plain)[key].get("present", True)
    assert observed(checkpointed)[key]["present"] is False


def test_a_checkpoint_that_recomputes_nothing_shows_in_the_executions(records):
    _, checkpointed = records("plain")
    assert not differing(checkpointed)
    assert [e["count"] for e in checkpointed["executions"]] == [1, 1, 1]


def test_what_no_graph_keeps_is_counted_as_held(records):
    def held(record):
        return {r["event"]: r.get("live", 0) for r in record["held"] if r["event"] not in ("layer", "node")}

    def begun(record):
        return [r.get("entered", 0) for r in record["held"] if r.get("execution")]

    (plain, faithful), (_, checkpointed) = records("faithful"), records("hoards")
    # The input and the target, 4 rows of 3 features, are there for as long as the run has them.
    assert held(plain)["step"] == held(plain)["backward"] == held(faithful)["backward"] == 96
    # The output of the segment, 4 rows of 5 features; early stop leaves the recomputation before it.
    assert held(checkpointed)["step"] == held(checkpointed)["backward"] == 96 + 80
    assert begun(checkpointed)[0] <= held(checkpointed)["forward"]


def test_what_is_held_is_noted_whenever_the_backward_of_a_layer_begins(records):
    def held(record):
        return [(r["layer"], r["live"]) for r in record["held"] if r["event"] == "node"]

    plain, checkpointed = records("faithful")
    # The input and the target are 96 bytes, an activation is 80, a mask 20 that count as 80.
    assert held(plain) == [(2, 256), (1, 176), (0, 96)]
    # The segment of layers 1 and 2 is recomputed after the backward of layer 2 began.
    assert held(checkpointed) == [(2, 176), (1, 256), (0, 96)]
    # An output, that of the forward or that of the recomputation, as long as the segment's graph.
    _, hoarding = records("hoards_recomputed")
    assert held(hoarding) == [(2, 176 + 80), (1, 256 + 80), (0, 96)]


def test_layers_are_noted_in_the_order_in_which_they_run(records):
    def ran(record):
        return [(r["layer"], r.get("execution", 0)) for r in record["live"]]

    plain, checkpointed = records("faithful")
    assert ran(plain) == [(0, 0), (1, 0), (2, 0)]
    assert ran(checkpointed) == [*ran(plain), (1, 1), (2, 1)]


def test_what_a_graph_keeps_after_its_backward_is_counted_while_the_loss_is_there(records):
    def left(record):
        after = [r for r in record["bytes"] if r["moment"] == "after_backward"]
        return [r.get("temporaries", 0) for r in after]

    plain, checkpointed = records("keeps_its_input")
    # The input of the segment, 4 rows of 5 features.
    assert left(plain) == [0] and left(checkpointed) == [80]


def test_an_exception_of_the_function_stands_in_the_record(records):
    _, checkpointed = records("fails")
    assert checkpointed["error"] == {"kind": "MemoryError", "message": "no room"}


def test_a_scope_that_outlives_the_handling_of_an_error_is_left_behind(records):
    inject = {**TRAINABLE, "inject": "forward_throws", "inject_layer": 1}
    plain, checkpointed = records("tells_no_scope_of_errors", {**MASKED, "protocol": inject})
    assert plain["trial"]["failed"] and "left_behind" not in plain["trial"]
    assert checkpointed["trial"]["left_behind"] == "hooks on saved tensors"


def test_settings_that_a_run_leaves_changed_are_an_error_and_none_of_the_next(start_python):
    harness = start_python(PREAMBLE + THREE_LINES.format(function="leaves_scopes_open"))
    plain = harness.record(**run_of(MASKED))
    error = harness.record(checkpointed=True)["error"]
    assert error["kind"] == "LeftBehind"
    assert error["message"].endswith("hooks on saved tensors, cache of autocast")
    # But for the bits that are not sent again, it is the same record.
    assert not differing(again := harness.record(checkpointed=False))
    assert {**again, "observations": 0} == {**plain, "observations": 0}


def test_all_settings_can_be_put_back():
    class Mode(TorchDispatchMode):
        pass

    class FunctionMode(TorchFunctionMode):
        pass

    assert put_back() == left_behind() == ""
    torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t).__enter__()
    torch.set_grad_enabled(False)
    torch.set_autocast_enabled("cpu", True)
    torch.set_autocast_cache_enabled(False)
    for mode in (Mode(), Mode(), FunctionMode()):
        mode.__enter__()
    assert put_back().count(", ") == 5
    assert left_behind() == ""


def test_a_script_is_a_subject_by_its_path(start, tmp_path):
    script = tmp_path / "mine.py"
    script.write_text(textwrap.dedent(PREAMBLE))
    harness = start(sys.executable, "-m", "rematch", f"{script}:faithful", "--observe", "cheap")
    assert harness.hello()["name"] == f"{script}:faithful"
    assert not differing(harness.both(run_of(MASKED))[1])


@pytest.mark.parametrize(
    ("place", "says"),
    [
        ("mine.py", "script.py:function or package.module:function expected"),
        ("no_such.py:checkpoint", "cannot be loaded"),
        ("no.such.module:checkpoint", "cannot be loaded"),
        ("math:checkpoint", "math has no checkpoint"),
        ("math:pi", "a function expected, got float"),
    ],
)
def test_a_name_that_leads_nowhere_ends_with_a_sentence(start, place, says):
    status, out, err = start(sys.executable, "-m", "rematch", place).close()
    assert status == 2 and out == ""
    assert says in err and "Traceback" not in err


def test_the_usual_early_stop_of_pytorch_is_left_unsaid(start_python, torch_subject):
    if "early_stop" not in HAS_DEFAULT:
        pytest.skip("this PyTorch has no such option")
    layers = ["linear", {"kind": "add", "from": [0, 0]}]
    case = chain(*layers, plan={"segments": [segment(0, 2)]}, protocol=TRAINABLE)
    record = torch_subject.record(**run_of(case), checkpointed=True)
    assert [e["count"] for e in record["executions"]] == [2, 1]
    assert [e["count"] for e in own(start_python, "stops_late", case)["executions"]] == [2, 2]


@pytest.mark.parametrize(
    ("function", "variant", "form"),
    [
        ("loses_keywords", "non_reentrant", "call"),
        ("loses_constants", "non_reentrant", "call"),
        ("loses_constants", "reentrant", "call"),
        ("wants_tensors_back", "reentrant", "call"),
        ("is_no_decorator", "reentrant", "decorator"),
    ],
)
def test_pytorch_is_given_more_than_tensors_and_used_as_a_decorator(
    start_python, torch_subject, function, variant, form
):
    if form == "decorator" and "function" not in HAS_DEFAULT:
        pytest.skip("the checkpoint() of this PyTorch makes no decorators")
    plan = {"segments": [segment(0, 2, variant)]}
    case = chain("linear", "duplicate", plan=plan, protocol=TRAINABLE, options={"checkpoint": form})
    assert "error" not in torch_subject.record(**run_of(case), checkpointed=True)
    assert "error" in own(start_python, function, case)


@pytest.mark.parametrize("wrapper", ["fsdp", "composable"])
@pytest.mark.parametrize("variant", ["reentrant", "non_reentrant"])
def test_wrapped_segments_are_recomputed_and_agree_with_the_plain_run(start, wrapper, variant):
    subject = start(sys.executable, "-m", "rematch", "pytorch", "--wrapper", wrapper)
    hello = subject.hello()
    if variant not in hello["implements"]:
        pytest.skip("the composable checkpoint() has the non-reentrant variant only")
    nested = segment(0, 2, variant, nested=[segment(0, 1, variant)])
    case = chain("linear", "dropout", "tanh", plan={"segments": [nested]}, protocol=TRAINABLE)
    plain, checkpointed = subject.agreed(case)
    assert all(o.get("as") for o in checkpointed["observations"])
    counts = [e["count"] for e in checkpointed["executions"]]
    assert counts[0] >= 2 and counts[2] == 1
    assert {d["hash"] for d in plain["draws"]} == {d["hash"] for d in checkpointed["draws"]}
