"""A checkpoint() of a user's own, in three lines, and what the records say when it is wrong."""

from __future__ import annotations

import sys
import textwrap

import pytest
from cases import chain, run_of, segment
from conftest import observed

pytest.importorskip("torch")

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

def plain(function, *inputs, **options):
    return function(*inputs)

def fails(function, *inputs, **options):
    raise MemoryError("no room")
"""
MASKED = chain(
    "linear",
    "dropout",
    "linear",
    plan={"segments": [segment(1, 3)]},
    protocol={"input_requires_grad": True},
)


@pytest.fixture
def records(start_python):
    """Both records of the case under a function of the preamble."""

    def run(function):
        harness = start_python(PREAMBLE + THREE_LINES.format(function=function))
        assert harness.hello()["name"] == "mine"
        return harness.record(**run_of(MASKED)), harness.record(checkpointed=True)

    return run


def same_bits(record):
    present = [o for o in observed(record).values() if o.get("present", True)]
    return all(o.get("as") for o in present)


def test_three_lines_make_a_subject_of_a_checkpoint_function(records):
    plain, checkpointed = records("faithful")
    assert same_bits(checkpointed)
    assert [e["count"] for e in checkpointed["executions"]] == [1, 2, 2]
    assert plain["draws"][0]["hash"] == checkpointed["draws"][1]["hash"]


def test_a_checkpoint_that_draws_a_new_mask_gives_other_records(records):
    plain, checkpointed = records("draws_anew")
    first, again = checkpointed["draws"]
    assert first["hash"] == plain["draws"][0]["hash"] != again["hash"]
    assert not same_bits(checkpointed)
    assert checkpointed["streams"] != plain["streams"]


def test_a_checkpoint_that_loses_a_gradient_leaves_it_absent(records):
    plain, checkpointed = records("loses_the_input_gradient")
    key = ("input_gradient", 0, 0, 0)
    assert observed(plain)[key].get("present", True)
    assert observed(checkpointed)[key]["present"] is False


def test_a_checkpoint_that_recomputes_nothing_shows_in_the_executions(records):
    _, checkpointed = records("plain")
    assert same_bits(checkpointed)
    assert [e["count"] for e in checkpointed["executions"]] == [1, 1, 1]


def test_an_exception_of_the_function_stands_in_the_record(records):
    _, checkpointed = records("fails")
    assert checkpointed["error"] == {"kind": "MemoryError", "message": "no room"}


def test_a_script_is_a_subject_by_its_path(start, tmp_path):
    script = tmp_path / "mine.py"
    script.write_text(textwrap.dedent(PREAMBLE))
    harness = start(sys.executable, "-m", "rematch", f"{script}:faithful", "--observe", "cheap")
    assert harness.hello()["name"] == f"{script}:faithful"
    harness.record(**run_of(MASKED))
    assert same_bits(harness.record(checkpointed=True))


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
    assert status == 1 and out == ""
    assert says in err and "Traceback" not in err
