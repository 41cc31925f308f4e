"""What the tape of autograd keeps, as the adapter counts it."""

from __future__ import annotations

import sys

import pytest
from cases import chain, run_of, segment
from harness import Harness

pytest.importorskip("autograd")

# A checkpoint as it should be: it computes again when the gradient is asked for.
LAZY = """
import autograd
from autograd.extend import defvjp_argnum, primitive
from rematch.frameworks.autograd.adapter import Autograd
from rematch.subjects.protocol import serve

def checkpoint_of(function):
    again = lambda n, args: autograd.make_vjp(function, n)(*args)[0]
    wrapped = primitive(function)
    defvjp_argnum(wrapped, lambda n, ans, args, kwargs: lambda g: again(n, args)(g))
    return wrapped

subject = Autograd()
subject.names["checkpoint_of"] = checkpoint_of
serve(subject)
"""


def kept(*command: str) -> list[list[tuple[str, int]]]:
    plan = {"segments": [segment(1, 4, early_stop=False, determinism="none")]}
    given = chain("relu", "tanh", "tanh", "tanh", plan=plan, protocol={"input_requires_grad": True})
    given["dtype"] = "float64"
    with Harness(sys.executable, *command) as harness:
        harness.hello()
        return [[(r["event"], r.get("live", 0)) for r in record["held"]] for record in harness.both(run_of(given))]


def test_a_lazy_checkpoint_keeps_its_input_and_autograds_own_keeps_all() -> None:
    plain, checkpointed = kept("-m", "rematch", "autograd")
    assert checkpointed == plain
    alone, lazy = kept("-c", LAZY)
    assert alone == plain
    (forward, of_plain), *others = plain
    assert others == lazy[1:] == [("backward", 0), ("step", 0)]
    assert lazy[0][0] == forward and 0 < lazy[0][1] < of_plain
