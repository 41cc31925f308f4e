"""Laws of the adapter of TensorFlow, eager and in tf.function."""

import sys

import pytest
from cases import TRAINABLE, WHOLE, chain, observed, plan, run_of, segment
from harness import Harness

LINEAR = {"kind": "linear", "features": 4}


def case(layers, begin, end, **rest):
    return chain(*layers, input=(2, 4), plan=plan(segment(begin, end, **WHOLE)), **rest)


def start(*options):
    with Harness(sys.executable, "-m", "rematch", "tensorflow", *options) as harness:
        yield harness


@pytest.fixture(scope="module")
def eager():
    yield from start()


@pytest.fixture(scope="module")
def closure():
    yield from start("--parameters", "closure")


@pytest.fixture(scope="module", params=["step", "forward"])
def in_function(request):
    yield from start("--function", request.param)


def test_gradients_of_two_backwards_are_added(eager):
    once, _ = eager.both(run_of(case([LINEAR], 0, 1)))
    twice, checkpointed = eager.both(run_of(case([LINEAR], 0, 1, protocol={"backwards": 2})))
    assert [e["count"] for e in checkpointed["executions"]] == [3]
    key = next(k for k in observed(once) if k[0] == "parameter_gradient")
    assert observed(once)[key] != observed(twice)[key]
    assert observed(checkpointed)[key].get("as")


def test_the_gradient_of_a_tensor_closed_over_is_absent_not_zero(closure):
    plain, checkpointed = closure.both(run_of(case([LINEAR], 0, 1)))
    key = next(k for k in observed(plain) if k[0] == "parameter_gradient")
    assert observed(plain)[key].get("present", True)
    assert observed(checkpointed)[key]["present"] is False


def test_cases_that_share_what_was_compiled_keep_their_own_parameters(in_function):
    layers = [LINEAR, {"kind": "tanh"}]
    found = []
    for seed in (7, 8):
        steps = {**TRAINABLE, "steps": seed - 6}
        given = {**case(layers, 0, 2, protocol=steps), "seed": seed}
        plain, checkpointed = in_function.both(run_of(given))
        assert "error" not in plain, plain
        assert observed(checkpointed).keys() == observed(plain).keys()
        assert next(o for k, o in observed(checkpointed).items() if k[0] == "output").get("as")
        found.append(observed(plain))
    output = next(k for k in found[0] if k[0] == "output")
    assert found[0][output] != found[1][output]


def test_a_step_is_compiled_once_for_all_cases_of_one_shape():
    from rematch.frameworks.tensorflow.adapter import subject
    from rematch.subjects.protocol import _Session

    in_function = subject(["--function", "step"])
    made = []
    compiled = in_function._compiled
    in_function._compiled = lambda run: made.append(run) or compiled(run)
    session = _Session(in_function)
    for seed, more in ((7, {}), (8, {"steps": 2, "microbatches": 2, "optimizer": "adam"})):
        protocol = {**TRAINABLE, **more}
        given = {**case([LINEAR], 0, 1, protocol=protocol), "seed": seed}
        answer = session.answer({"run": {**run_of(given), "checkpointed": False}})
        assert "record" in answer["answer"], answer
    assert len(made) == 1


FAULTY = """
import inspect
from tensorflow.python.ops import custom_gradient
from rematch.frameworks.tensorflow.framework import TensorFlow
from rematch.subjects.protocol import serve
source = inspect.getsource(custom_gradient.recompute_grad).partition("\\n")[2]
assert source.count({old!r}) == 1
names = dict(vars(custom_gradient), kept=[])
exec(source.replace({old!r}, {new!r}), names)
made = TensorFlow()
made.names["faulty"] = names["recompute_grad"]
made.checkpoint = "faulty({{function}})({{arguments}})"
serve(made)
"""


def kept(harness):
    """Bytes kept in the plain and in the checkpointed run, those when segments begin, and the layers that save some."""
    linear, tanh = LINEAR, {"kind": "tanh"}
    protocol = {"input_requires_grad": True, "microbatches": 2, "forwards_first": True}
    given = case([linear, tanh, tanh, tanh], 1, 4, protocol=protocol)
    records = harness.both(run_of(given), layer_values=True)
    assert not any("error" in record for record in records), records
    held = [[r.get("live", 0) for r in record["held"] if r["event"] != "layer"] for record in records]
    assert [readings[:-1] for readings in held] == [[r.get("saved", 0) for r in record["bytes"]] for record in records]
    begun = [r.get("entered", 0) for r in records[1]["held"] if r["event"] == "layer"]
    return held, begun, {entry.get("layer", 0) for entry in records[0]["values"]}


def kept_with(old, new):
    """The same with another tf.recompute_grad()."""
    with Harness(sys.executable, "-c", FAULTY.format(old=old, new=new)) as harness:
        return kept(harness)[0]


def test_a_tape_keeps_of_a_segment_what_it_is_given_and_after_the_backward_nothing(eager):
    (plain, fewer), begun, layers = kept(eager)
    size = 4 * 2 * 4
    # Gone are what the first two of three layers save; the loss has the output of the last one, too.
    assert plain[0] - fewer[0] == 2 * size - size
    assert plain == [plain[0], 2 * plain[0], plain[0], 0, 0] and fewer == [fewer[0], 2 * fewer[0], fewer[0], 0, 0]
    assert {1, 2} <= layers
    # Forwards, and recomputations: by then the loss has been differentiated.
    assert len(begun) == 4 and begun[2] < fewer[1] and begun[3] < fewer[2]


def test_a_segment_that_keeps_what_it_computes_is_seen():
    new = "with backprop.GradientTape(persistent=True) as tape:\n      kept.append(tape)\n      tape.watch(args)\n"
    plain, more = kept_with("with record.stop_recording():\n", new)
    assert more[0] > plain[0]


def test_a_recomputation_that_outlives_the_backward_is_seen():
    old = "with backprop.GradientTape() as t:\n"
    plain, more = kept_with(old, "with backprop.GradientTape(persistent=True) as t:\n          kept.append(t)\n")
    assert more[0] < plain[0] and more[2] > plain[2] and more[3] > plain[3] == 0 and more[-1] > 0
