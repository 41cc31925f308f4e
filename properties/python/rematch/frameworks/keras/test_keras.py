"""Laws of the adapter of Keras, on each backend that is here."""

import re
import sys
from importlib.util import find_spec

import pytest
from cases import TRAINABLE, WHOLE, chain, plan, run_of, segment
from harness import Harness, run_alone

BACKENDS = [name for name in ("tensorflow", "torch", "jax") if find_spec("keras") and find_spec(name)]
if not BACKENDS:
    pytest.skip("no Keras, or no backend of it", allow_module_level=True)


def case(*layers, begin=0, end=2, **protocol):
    return chain(*layers, input=(2, 4), plan=plan(segment(begin, end, **WHOLE)), protocol=protocol)


@pytest.fixture(scope="module", params=[(b, m) for b in BACKENDS for m in (None, "full")])
def keras(request):
    backend, scope = request.param
    options = ["--scope", scope] if scope else []
    with Harness(sys.executable, "-m", "rematch", "keras", "--backend", backend, *options) as harness:
        harness.backend = backend
        yield harness


def test_on_jax_what_a_segment_assigns_is_traced_and_a_script_shows_it(tmp_path):
    if "jax" not in BACKENDS:
        pytest.skip("needs Keras on JAX")
    given = case("dropout", "tanh")
    with Harness(sys.executable, "-m", "rematch", "keras", "--backend", "jax") as harness:
        assert "error" not in harness.record(**run_of(given), checkpointed=False)
        assert "Tracer" in harness.record(checkpointed=True)["error"]["kind"]
        got = "TracerArrayConversionError: The numpy.ndarray conversion"
        finding = f"errors: a law\nexpected: no error\ngot: {got}"
        script = harness.export(run_of(given), finding)["script"]
    done = run_alone(script, tmp_path)
    assert done.returncode == 1, done.stderr
    assert "Tracer" in done.stdout


def test_on_tensorflow_a_segment_saves_less_than_its_layers_do(keras):
    if keras.backend != "tensorflow":
        pytest.skip("needs Keras on TensorFlow")
    given = case(*["tanh"] * 4, begin=1, end=4, **TRAINABLE)
    records = keras.both(run_of(given), layer_values=True)
    (plain, none), (fewer, left) = ([entry.get("saved", 0) for entry in record["bytes"]] for record in records)
    # Gone is what the first two of three layers save; the last output is the run's.
    assert plain - fewer == 2 * 32 and none == left == 0
    assert {entry.get("layer", 0) for entry in records[0]["values"]} == {0, 1, 2}


def test_a_script_runs_on_the_backend_where_its_finding_was_made(keras):
    given = case({"kind": "linear", "features": 4}, "gelu")
    script = keras.export(run_of(given), "")["script"]
    (backend,) = re.findall(r"# keras \S+ on (\w+);", script)
    assert f'os.environ["KERAS_BACKEND"] = "{backend}"\n' in script


def test_what_a_plain_step_assigns_stays(keras):
    norm = {"kind": "custom", "layer": "keras.layers.BatchNormalization.0: N ... -> N ...; parameters, state"}
    given = case("dropout", norm, steps=2) | {"plan": plan()}
    record = keras.record(**run_of(given), checkpointed=False)
    assert "error" not in record, record
    first, second = [o for o in record["observations"] if o["quantity"] == "buffer"]
    assert first["data"] != second["data"]
    first, second = [s["seed"] for s in record["streams"] if s["moment"] == "after_step"]
    assert first != second


UNCHECKPOINTED = """
from rematch.frameworks.keras.adapter import subject
from rematch.subjects.protocol import serve
made = subject(["--backend", "{backend}"])
made.checkpoint = "{checkpoint}"
serve(made)
"""


def kept(backend, checkpoint):
    """Bytes saved and bytes held in the plain run and in one where segments are that expression."""
    whole = plan(segment(1, 4, **WHOLE))
    given = chain("linear", "tanh", "tanh", "tanh", plan=whole, protocol={**TRAINABLE, "microbatches": 2})
    program = UNCHECKPOINTED.replace("{backend}", backend).replace("{checkpoint}", checkpoint)
    with Harness(sys.executable, "-c", program) as harness:
        records = harness.both(run_of(given), layer_values=True)
    saved = [[reading.get("saved", 0) for reading in record["bytes"]] for record in records]
    return saved, [[reading.get("live", 0) for reading in record["held"]] for record in records]


@pytest.mark.parametrize("backend", sorted({"torch"} & set(BACKENDS)))
def test_a_segment_saves_its_input_alone_and_one_that_is_not_checkpointed_as_much_as_the_plain_run(backend):
    saved, held = kept(backend, "keras.remat({function})({arguments})")
    size = 4 * 4 * 5
    assert saved[0][0] - saved[1][0] == 2 * size
    assert saved[0][1::2] == saved[1][1::2] == [0, 0]
    # The run has the output of the segment.
    assert held[0][0] - held[1][0] == size
    saved, held = kept(backend, "{function}({arguments})")
    assert saved[0] == saved[1] and held[0] == held[1]
