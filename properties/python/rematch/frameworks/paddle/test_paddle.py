"""Laws of adapters with a tape, tried with PaddlePaddle: what it accumulates itself is judged."""

import sys

import pytest
from cases import TRAINABLE, WHOLE, chain, observed, run_of, segment
from harness import Harness, run_alone

VARIANTS = ["reentrant", "non_reentrant"]


def both(paddle, variant, *kinds, begin=0, end=2, **protocol):
    plan = {"segments": [segment(begin, end, variant, **(WHOLE if variant != "reentrant" else {}))]}
    given = chain(*kinds, plan=plan, protocol={**TRAINABLE, **protocol})
    return paddle.both(run_of(given))


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_checkpointed_run_has_the_bits_of_the_plain_one(paddle, variant):
    kinds = ["linear", "dropout", "gelu", "layer_norm", "group_norm", "tanh", "softmax"]
    plain, checkpointed = both(paddle, variant, *kinds, end=6, steps=2, microbatches=2, forwards_first=True)
    assert "error" not in plain and "error" not in checkpointed
    assert all(value.get("as") for value in observed(checkpointed).values())
    assert {d.get("execution", 0) for d in checkpointed["draws"]} == {0, 1}


@pytest.mark.parametrize("variant", VARIANTS)
def test_gradients_accumulate_from_step_to_step(paddle, variant):
    once, _ = both(paddle, variant, "linear", "tanh")
    kept, checkpointed = both(paddle, variant, "linear", "tanh", steps=2, zero_grad=False, prior_gradients=True)
    gradient = ("parameter_gradient", 0, 0, 0)
    assert observed(once)[gradient]["data"] != observed(kept)[gradient]["data"]
    assert all(value.get("as") for value in observed(checkpointed).values())
    assert {h["count"] for h in checkpointed["hooks"]} == {1}


def test_a_reentrant_segment_of_a_frozen_input_has_absent_gradients(paddle):
    plain, checkpointed = both(paddle, "reentrant", "linear", "tanh", input_requires_grad=False)
    gradient = ("parameter_gradient", 0, 0, 0)
    assert observed(plain)[gradient].get("present", True)
    assert not observed(checkpointed)[gradient].get("present", True)


@pytest.mark.parametrize("variant", VARIANTS)
def test_what_a_graph_keeps_is_counted_and_what_hooks_packed_outlives_the_backward(paddle, variant):
    kept = []
    for record in both(paddle, variant, "linear", "tanh", "tanh", begin=1, end=3, microbatches=2, forwards_first=True):
        assert [r["saved"] for r in record["bytes"][:2]] == [r["live"] for r in record["held"][:2]]
        kept.append([r.get("live", 0) for r in record["held"]])
    one = kept[0][0]
    assert kept[0] == [one, 2 * one, one, 0, 0]
    fewer, of_both, *_, last, step = kept[1]
    assert fewer < one and of_both == 2 * fewer and step == 0
    assert (last > 0) == (variant == "non_reentrant")


def test_a_segment_that_is_not_checkpointed_keeps_as_much_as_the_plain_run():
    planted = (
        "from rematch.frameworks.paddle.adapter import Paddle\nfrom rematch.subjects.protocol import serve\n"
        "Paddle.checkpoint_call = lambda self, f, a, *_: f'{f}({chr(44).join(a)})'\nserve(Paddle())"
    )
    with Harness(sys.executable, "-c", planted) as harness:
        plain, checkpointed = both(harness, "reentrant", "linear", "tanh", "tanh", end=3)
    assert [r.get("saved") for r in checkpointed["bytes"]] == [r.get("saved") for r in plain["bytes"]]


def test_a_run_that_kills_its_process_is_an_error_of_that_run(paddle):
    plan = {"segments": [segment(0, 1, "reentrant")]}
    given = chain("tanh", plan=plan, protocol={**TRAINABLE, "backwards": 2}, options={"fatal": "run"})
    assert "error" not in paddle.record(**run_of(given), checkpointed=False)
    assert "signal" in paddle.record(checkpointed=True)["error"]["message"]
    assert "error" not in paddle.record(checkpointed=False)


def test_a_failed_recomputation_is_put_right_before_the_steps(paddle):
    given = chain(
        "linear",
        "tanh",
        plan={"segments": [segment(0, 2, **WHOLE)]},
        protocol={**TRAINABLE, "inject": "recomputation_throws", "inject_layer": 1},
    )
    asked = run_of(given)
    asked["arrays"] |= {"trial_input": asked["arrays"]["inputs"][0], "trial_target": asked["arrays"]["targets"][0]}
    plain, checkpointed = paddle.both(asked)
    assert not plain["trial"].get("failed", False)
    assert checkpointed["trial"]["failed"] and checkpointed["trial"]["left_behind"] == "grad mode"
    assert all(value.get("as") for value in observed(checkpointed).values())


def test_a_script_shows_statistics_that_are_updated_twice(paddle, tmp_path):
    norm = {"kind": "custom", "layer": "nn.BatchNorm1D.0: N ... -> N ...; parameters, state"}
    given = chain(norm, plan={"segments": [segment(0, 1, "reentrant")]}, protocol=TRAINABLE)
    script = paddle.export(run_of(given), "buffers-after-step: differ")["script"]
    assert "DIFFERENT: state of m0" in run_alone(script, tmp_path).stdout
