"""Laws of adapters that are tables of expressions, tried with MLX."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from cases import observed, run_of
from harness import Harness
from tokens import looks_tokens_up

from rematch.arrays import decode

pytest.importorskip("mlx.core")

_TRAINED = {"protocol": {"input_requires_grad": True}}
SEGMENT = {"variant": "non_reentrant", "early_stop": False, "determinism": "none"}
KINDS = [
    {"kind": "conv2d", "features": 2, "kernel": 3, "padding": 1},
    {"kind": "max_pool2d", "kernel": 2, "stride": 2},
    {"kind": "avg_pool2d", "kernel": 1},
    {"kind": "flatten"},
    {"kind": "linear", "features": 4},
    {"kind": "layer_norm"},
    {"kind": "gelu"},
    {"kind": "silu"},
    {"kind": "split", "features": 2},
    {"kind": "concat", "from": [8, 1]},
    {"kind": "rms_norm"},
    {"kind": "softmax"},
    {"kind": "duplicate"},
    {"kind": "add", "from": [12, 1]},
    {"kind": "tanh"},
    {"kind": "sigmoid"},
    {"kind": "relu"},
]


@pytest.fixture(scope="module")
def mlx() -> Iterator[Harness]:
    with Harness(sys.executable, "-m", "rematch", "mlx") as harness:
        harness.hello()
        yield harness


def case(layers: list[dict[str, Any]], *segments: tuple[int, int], **rest: Any) -> dict[str, Any]:
    plan = {"segments": [{"begin": b, "end": e, **SEGMENT} for b, e in segments]}
    shape = [2, 2, 4, 4] if layers[0]["kind"] in ("conv2d", "max_pool2d") else [2, 4]
    return {"format": 1, "seed": 7, "input": shape, "layers": layers, "plan": plan, **rest}


def both(subject: Harness, given: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    plain = subject.record(**run_of(given), checkpointed=False)
    return plain, subject.record(checkpointed=True)


def test_all_kinds_have_the_same_gradients_checkpointed(mlx: Harness) -> None:
    plain, checkpointed = both(mlx, case(KINDS, (0, 5), (9, 12), (14, 17), **_TRAINED))
    assert "error" not in plain, plain
    names = {key[0] for key in observed(plain)}
    assert {"output", "loss", "input_gradient", "parameter_gradient", "parameter"} <= names
    for key, value in observed(checkpointed).items():
        assert value.get("as"), key


def test_tokens_are_looked_up_and_a_layer_in_eval_mode_does_nothing(mlx: Harness) -> None:
    looks_tokens_up(mlx, early_stop=False, determinism="none")


def test_layers_of_a_segment_run_twice_and_others_once(mlx: Harness) -> None:
    layers = [{"kind": "linear", "features": 4}, {"kind": "tanh"}, {"kind": "relu"}]
    plain, checkpointed = both(mlx, case(layers, (0, 2)))
    assert [e["count"] for e in plain["executions"]] == [1, 1, 1]
    assert [e["count"] for e in checkpointed["executions"]] == [2, 2, 1]


def test_a_recomputed_mask_is_seen(mlx: Harness) -> None:
    plain, checkpointed = both(mlx, case([{"kind": "dropout", "p": 0.5}], (0, 1), **_TRAINED))
    assert len(plain["draws"]) == 1
    assert [d.get("execution", 0) for d in checkpointed["draws"]] == [0, 1]
    assert checkpointed["draws"][0] == plain["draws"][0]


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
