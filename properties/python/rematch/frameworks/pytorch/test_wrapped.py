"""Segments as modules that are wrapped once, and what wrappers promise beside equal numbers."""

import sys
from dataclasses import replace

import pytest
from cases import TRAINABLE, chain, segment

from rematch.frameworks.pytorch.export import Interpreter
from rematch.frameworks.pytorch.wrappers import WRAPPERS, WrappedSubject
from rematch.subjects.protocol import Unsupported

BROKEN = [("composable", "debug_is_an_option"), ("composable", "hooks_of_a_module_without_early_stop")]
"""Promises that PyTorch breaks; the profile names them."""
PROMISES = [(name, promise.__name__) for name, wrapper in WRAPPERS.items() for promise in wrapper.promises]


@pytest.fixture(scope="module", params=WRAPPERS)
def wrapped(request):
    return WrappedSubject(WRAPPERS[request.param], variant="non_reentrant")


@pytest.fixture(scope="module")
def interpreter():
    return Interpreter()


@pytest.mark.parametrize("seed", range(8))
def test_a_wrapped_model_trains_evaluates_fails_and_is_copied_as_a_plain_one(wrapped, start, seed):
    # Seeds decide whether the model is a copy, how its state is handed on, and how early stop is said.
    subject = start(sys.executable, "-m", "rematch", "pytorch", "--wrapper", wrapped.name.removeprefix("torch "))
    outer = segment(
        0, 3, "non_reentrant", nested=[segment(0, 1, "non_reentrant")] if seed % 2 else [], early_stop=False
    )
    protocol = {**TRAINABLE, "steps": 3, "reevaluate": True, "inject": "forward_throws", "inject_layer": 1}
    case = chain("linear", "dropout", "linear", plan={"segments": [outer]}, protocol=protocol, seed=seed)
    _, checkpointed = subject.agreed(case)
    assert checkpointed["trial"]["failed"] and all(o.get("as") for o in checkpointed["observations"])
    assert all(e["count"] >= 2 for e in checkpointed["executions"])


@pytest.mark.parametrize(("wrapper", "promise"), PROMISES)
def test_each_promise_is_kept_but_where_known(wrapper, promise):
    told = WrappedSubject(WRAPPERS[wrapper]).broken(promise)
    assert bool(told) == ((wrapper, promise) in BROKEN)
    assert not told or f"({promise})" in told


@pytest.mark.parametrize(("wrapper", "promise"), PROMISES)
def test_a_script_shows_each_promise(wrapper, promise, interpreter):
    script = WrappedSubject(WRAPPERS[wrapper]).export(None, f"promises: ({promise})")
    status, out, error = interpreter.run(script, 60)
    assert status == ((wrapper, promise) in BROKEN), out + error


def test_no_script_shows_what_takes_a_model_that_stays_wrapped(wrapped):
    with pytest.raises(Unsupported, match="stay wrapped"):
        wrapped.export(None, "outputs: ...")


def test_a_wrapper_that_forgets_its_options_is_told(start):
    wrapper = WRAPPERS["composable"]
    forgets = replace(wrapper, checkpoint_function="lambda module, **options: checkpoint(module)")
    assert "Not so (early_stop_is_an_option)" in WrappedSubject(forgets).broken("early_stop_is_an_option")
