"""Scripts of adapters that are tables of expressions, tried with MLX."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from cases import run_of
from harness import Harness

from rematch.arrays import decode

pytest.importorskip("mlx.core")

_TRAINED = {"protocol": {"input_requires_grad": True}}
SEGMENT = {"variant": "non_reentrant", "early_stop": False, "determinism": "none"}


@pytest.fixture(scope="module")
def mlx() -> Iterator[Harness]:
    with Harness(sys.executable, "-m", "rematch", "mlx") as harness:
        harness.hello()
        yield harness


def case(layers: list[dict[str, Any]], *segments: tuple[int, int], **rest: Any) -> dict[str, Any]:
    plan = {"segments": [{"begin": b, "end": e, **SEGMENT} for b, e in segments]}
    return {"format": 1, "seed": 7, "input": [2, 4], "layers": layers, "plan": plan, **rest}


def test_a_script_has_the_tokens_of_the_case(mlx: Harness) -> None:
    layers = [{"kind": "embedding", "vocabulary": 5, "features": 2}]
    plan = {"segments": [{"begin": 0, "end": 1, **SEGMENT}]}
    given = {"format": 1, "seed": 7, "input": [2, 3], "layers": layers, "plan": plan}
    asked = {**run_of(given), "finding": "errors: an error"}
    mlx.send({"export": {"id": 9, **asked}})
    script = mlx.receive()["answer"]["script"]
    tokens = decode(asked["arrays"]["inputs"][0])
    assert f"x = mx.array(np.array({tokens.tolist()}, np.int32))" in script


def test_a_script_shows_the_finding_with_nothing_but_the_framework(mlx: Harness, tmp_path) -> None:
    layers = [{"kind": "duplicate"}, {"kind": "add", "from": [0, 1]}]
    asked = {**run_of(case(layers, (0, 1), **_TRAINED)), "finding": "input-gradients: differ"}
    mlx.send({"export": {"id": 9, **asked}})
    script = mlx.receive()["answer"]["script"]
    path = tmp_path / "script.py"
    path.write_text(script)
    ended = subprocess.run([sys.executable, "-I", str(path)], capture_output=True, text=True)
    assert ended.returncode == 1, ended.stderr
    assert ended.stdout.rstrip().endswith("DIFFERENT: gradient of x")
    assert "rematch" not in script


def test_no_script_is_written_for_an_error_that_does_not_occur(mlx: Harness) -> None:
    finding = "errors: x\nexpected: no error\ngot: ValueError: y"
    asked = {**run_of(case([{"kind": "dropout", "p": 0.5}], (0, 1), **_TRAINED))}
    mlx.send({"export": {"id": 9, **asked, "finding": finding}})
    assert "no script was found" in mlx.receive()["answer"]["unsupported"]


def test_no_script_is_written_where_both_runs_agree(mlx: Harness) -> None:
    asked = {**run_of(case([{"kind": "tanh"}], (0, 1), **_TRAINED)), "finding": "outputs: x"}
    mlx.send({"export": {"id": 9, **asked}})
    assert "no script was found" in mlx.receive()["answer"]["unsupported"]
