"""Tests of what is MindSpore's own: segments are cells, with the modules that they call."""

import sys

import pytest
from cases import TRAINABLE, WHOLE, chain, observed, run_of, segment
from harness import Harness, run_alone

DENSE = {"kind": "custom", "layer": "dense: N C -> N C; parameters"}


@pytest.mark.parametrize("variant", ["reentrant", "non_reentrant"])
def test_a_nested_segment_trains_its_modules(mindspore, variant):
    off = {} if variant == "reentrant" else WHOLE
    inner = segment(1, 2, variant, **off)
    outer = segment(0, 3, variant, **off, nested=[inner])
    given = chain("tanh", DENSE, "tanh", plan={"segments": [outer]}, protocol=TRAINABLE)
    plain, checkpointed = mindspore.both(run_of(given))
    assert "error" not in checkpointed, checkpointed
    assert "data" in observed(plain)["parameter_gradient", 0, 0, 0]
    assert all(entry.get("as") for entry in checkpointed["observations"])


def test_early_stop_is_an_option_that_is_handed_on(mindspore):
    given = chain("dropout", plan={"segments": [segment(0, 1)]}, protocol=TRAINABLE)
    assert "error" in mindspore.both(run_of(given))[1]
    off = segment(0, 1, **WHOLE)
    given = chain("dropout", plan={"segments": [off]}, protocol=TRAINABLE)
    assert "error" not in mindspore.both(run_of(given))[1]


UNCHECKPOINTED = """
from rematch.frameworks.mindspore.adapter import MindSpore
from rematch.subjects.protocol import serve
made = MindSpore()
made.checkpoint_call = lambda function, arguments, *rest: f"{function}({', '.join(arguments)})"
serve(made)
"""


def saved(harness, variant):
    """Bytes saved in the plain and in the checkpointed run, and the layers that save some."""
    off = {} if variant == "reentrant" else WHOLE
    given = chain(
        "tanh", "tanh", "tanh", "tanh", plan={"segments": [segment(1, 4, variant, **off)]}, protocol=TRAINABLE
    )
    records = harness.both(run_of(given), layer_values=True)
    assert not any("error" in record for record in records), records
    layers = {entry.get("layer", 0) for entry in records[0]["values"]}
    return [entry["saved"] for record in records for entry in record["bytes"]], layers


@pytest.mark.parametrize("variant", ["reentrant", "non_reentrant"])
def test_a_segment_saves_its_input_and_a_plain_one_what_its_layers_need(mindspore, variant):
    (plain, fewer), layers = saved(mindspore, variant)
    # Gone is what three layers save.
    assert plain - fewer == 3 * 96 and layers == {0, 1, 2, 3}
    with Harness(sys.executable, "-c", UNCHECKPOINTED) as harness:
        assert saved(harness, variant)[0] == [plain, plain]


def test_a_script_shows_an_error_of_the_checkpointed_run(mindspore, tmp_path):
    given = chain("dropout", plan={"segments": [segment(0, 1)]}, protocol=TRAINABLE)
    got = "RuntimeError: Stack input_args_info_stack_ is empty"
    script = mindspore.export(run_of(given), f"errors: a law\nexpected: no error\ngot: {got}")["script"]
    assert f"  expected      None\n  checkpointed  {got}" in run_alone(script, tmp_path).stdout


def test_a_script_of_nested_segments_trains_their_modules(mindspore, tmp_path):
    outer = segment(0, 3, "reentrant", nested=[segment(1, 2, "reentrant")])
    given = chain("tanh", DENSE, "tanh", plan={"segments": [outer]}, protocol=TRAINABLE)
    told = run_alone(mindspore.export(run_of(given), "")["script"], tmp_path).stdout
    assert told.rstrip().endswith("same"), told
