"""Tests of what is MindSpore's own: segments are cells, with the modules that they call."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from cases import chain, observed, run_of, segment
from harness import Harness

pytest.importorskip("mindspore")

TRAINED = {"input_requires_grad": True}
DENSE = {"kind": "custom", "layer": "dense: N C -> N C; parameters"}


@pytest.fixture(scope="module")
def mindspore() -> Iterator[Harness]:
    with Harness(sys.executable, "-m", "rematch", "mindspore") as harness:
        harness.hello()
        yield harness


def both(subject: Harness, given: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    plain = subject.record(**run_of(given), checkpointed=False)
    return plain, subject.record(checkpointed=True)


@pytest.mark.parametrize("variant", ["reentrant", "non_reentrant"])
def test_a_nested_segment_trains_its_modules(mindspore: Harness, variant: str) -> None:
    off = {} if variant == "reentrant" else {"early_stop": False, "determinism": "none"}
    inner = segment(1, 2, variant, **off)
    outer = segment(0, 3, variant, **off, nested=[inner])
    given = chain("tanh", DENSE, "tanh", plan={"segments": [outer]}, protocol=TRAINED)
    plain, checkpointed = both(mindspore, given)
    assert "error" not in checkpointed, checkpointed
    assert "data" in observed(plain)["parameter_gradient", 0, 0, 0]
    assert all(entry.get("as") for entry in checkpointed["observations"])


def test_early_stop_is_an_option_that_is_handed_on(mindspore: Harness) -> None:
    given = chain("dropout", plan={"segments": [segment(0, 1)]}, protocol=TRAINED)
    assert "error" in both(mindspore, given)[1]
    off = segment(0, 1, early_stop=False, determinism="none")
    given = chain("dropout", plan={"segments": [off]}, protocol=TRAINED)
    assert "error" not in both(mindspore, given)[1]


def script_for(subject: Harness, given: dict[str, Any], finding: str) -> str:
    subject.send({"export": {"id": 9, **run_of(given), "finding": finding}})
    return subject.receive()["answer"]["script"]


def output_of(script: str, path: Any) -> str:
    path.write_text(script)
    ended = subprocess.run([sys.executable, "-I", str(path)], capture_output=True, text=True)
    return ended.stdout


def test_a_script_shows_an_error_of_the_checkpointed_run(mindspore: Harness, tmp_path: Any) -> None:
    given = chain("dropout", plan={"segments": [segment(0, 1)]}, protocol=TRAINED)
    got = "RuntimeError: Stack input_args_info_stack_ is empty"
    script = script_for(mindspore, given, f"errors: a law\nexpected: no error\ngot: {got}")
    assert f"  plain         None\n  checkpointed  {got}" in output_of(script, tmp_path / "s.py")


def test_a_script_of_nested_segments_trains_their_modules(mindspore: Harness, tmp_path: Any) -> None:
    outer = segment(0, 3, "reentrant", nested=[segment(1, 2, "reentrant")])
    given = chain("tanh", DENSE, "tanh", plan={"segments": [outer]}, protocol=TRAINED)
    told = output_of(script_for(mindspore, given, ""), tmp_path / "s.py")
    assert told.rstrip().endswith("same"), told
