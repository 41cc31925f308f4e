"""Layers whose numbers random cases seldom show: special values, ties, draws, scales, evaluation.

Hunts compare all layers with the reference engine (law `agrees-with-reference`).
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from cases import chain, observed, run_of, segment

from rematch.subjects.arrays import decode, encode

pytest.importorskip("torch")

EPS = 1e-5


def numbers(record, quantity, **place):
    key = (quantity, place.get("step", 0), place.get("microbatch", 0), place.get("index", 0))
    return decode(observed(record)[key])


def run(subject, *layers, input=(3, 4), segments=(), **protocol):
    plan = {"segments": list(segments)}
    case = chain(*layers, input=input, dtype="float64", plan=plan, protocol=protocol)
    sent = run_of(case)
    return subject.record(**sent), {
        name: [decode(a) for a in arrays] for name, arrays in sent["arrays"].items() if isinstance(arrays, list)
    }


def test_delayed_scaling_divides_by_what_the_forwards_before_left(torch_subject):
    record, arrays = run(torch_subject, "delayed_scaling", microbatches=2)
    first, second = arrays["inputs"]
    scale = (1 + abs(first).max()) / 2
    np.testing.assert_array_equal(numbers(record, "output"), first)
    np.testing.assert_array_equal(numbers(record, "output", microbatch=1), second / scale)
    np.testing.assert_array_equal(numbers(record, "buffer"), [(scale + abs(second).max()) / 2])
    record, arrays = run(torch_subject, "delayed_scaling", train=False)
    np.testing.assert_array_equal(numbers(record, "output"), arrays["inputs"][0])
    np.testing.assert_array_equal(numbers(record, "buffer"), [1])


def in_float8(x, scale):
    """x in float8 e4m3, from the definition: the nearest of all numbers, the even one of two."""
    exponent, fraction = np.divmod(np.arange(127), 8)
    small = exponent == 0
    numbers = np.where(small, fraction * 2.0**-9, (8 + fraction) * 2.0 ** (exponent - 10.0))
    size = np.minimum(abs(x / scale), 448)
    distance = abs(size[..., None] - numbers)
    nearest = distance == distance.min(-1, keepdims=True)
    code = np.where(nearest, np.arange(127) % 2, 2).argmin(-1)
    return np.copysign(numbers[code], x) * scale


def test_float8_rounds_by_the_largest_magnitude_of_four_forwards(torch_subject):
    layer = {"kind": "delayed_scaling", "fp8": True}
    record, arrays = run(torch_subject, layer, microbatches=6, input_requires_grad=True)
    seen = [0.0] * 4
    for i, x in enumerate(arrays["inputs"]):
        scale = max(seen) / 448 or 1.0
        np.testing.assert_array_equal(numbers(record, "output", microbatch=i), in_float8(x, scale))
        seen = [*seen[1:], abs(x).max()]
    np.testing.assert_array_equal(numbers(record, "buffer"), seen)
    record, arrays = run(torch_subject, layer, train=False)
    (x,) = arrays["inputs"]
    np.testing.assert_array_equal(numbers(record, "output"), in_float8(x, 1.0))
    np.testing.assert_array_equal(numbers(record, "buffer"), [0] * 4)


def scaled(subject, inputs, **fields):
    """Outputs of a forward after the other, and the state that they leave."""
    layer = {"kind": "delayed_scaling", **fields}
    microbatches = {"microbatches": len(inputs)}
    case = run_of(chain(layer, input=(2, 1), dtype="float64", protocol=microbatches))
    case["arrays"]["inputs"] = [encode(np.array(x, "float64").reshape(2, 1)) for x in inputs]
    record = subject.record(**case)
    outputs = [numbers(record, "output", microbatch=i).ravel() for i in range(len(inputs))]
    return outputs, numbers(record, "buffer")


def test_nan_does_not_count_towards_a_scale(torch_subject):
    nan = math.nan
    outputs, scale = scaled(torch_subject, [[nan, -7], [8, 4], [nan, nan]])
    np.testing.assert_array_equal(outputs, [[nan, -7], [2, 1], [nan, nan]])
    np.testing.assert_array_equal(scale, [3])
    outputs, history = scaled(torch_subject, [[nan, -896], [nan, nan], [896, nan]], fp8=True)
    np.testing.assert_array_equal(outputs, [[nan, -448], [nan, nan], [896, nan]])
    np.testing.assert_array_equal(history, [0, 896, 0, 896])
    _, history = scaled(torch_subject, [[nan, -math.inf]], fp8=True)
    np.testing.assert_array_equal(history, [0, 0, 0, math.inf])


def test_halfway_between_large_numbers_does_not_overflow(torch_subject):
    _, scale = scaled(torch_subject, [[1.5 * 2.0**1023, 1]] * 2)
    np.testing.assert_array_equal(scale, [1.125 * 2.0**1023])


def test_a_row_goes_to_the_first_of_equally_likely_experts(torch_subject):
    case = run_of(chain({"kind": "moe", "experts": 4, "top": 2}, input=(3, 2), dtype="float64"))
    case["arrays"]["parameters"][0] = encode(np.zeros((4, 2)))
    record = torch_subject.record(**case)
    np.testing.assert_array_equal(numbers(record, "buffer"), [3, 3, 0, 0])


def test_jitter_moves_rows_to_other_experts_in_training_only(torch_subject):
    layer = {"kind": "moe", "experts": 4, "top": 1, "p": 1e6}
    quiet = {**layer, "p": 0.0}
    (moved, _), (still, _) = (run(torch_subject, one, input=(16, 4)) for one in (layer, quiet))
    assert numbers(moved, "buffer").sum() == numbers(still, "buffer").sum() == 16
    assert not np.array_equal(numbers(moved, "buffer"), numbers(still, "buffer"))
    (moved, _), (still, _) = (run(torch_subject, one, input=(16, 4), train=False) for one in (layer, quiet))
    np.testing.assert_array_equal(numbers(moved, "output"), numbers(still, "output"))


@pytest.mark.parametrize("still", [{"p": 0.0}, {"p": 0.5, "eval": True}])
def test_without_a_draw_every_sample_takes_the_branch(torch_subject, still):
    layer = {"kind": "stochastic_depth", **still}
    record, arrays = run(torch_subject, layer, input=(2, 3, 4), input_requires_grad=True)
    (x,), (weight,) = arrays["inputs"], arrays["parameters"]
    np.testing.assert_allclose(numbers(record, "output"), x + x @ weight.T, rtol=1e-12, atol=1e-14)
    assert not record.get("draws")


def test_a_sample_skips_the_branch_or_gets_its_scaled_result(torch_subject):
    layer = {"kind": "stochastic_depth", "p": 0.75}
    record, arrays = run(torch_subject, layer, input=(16, 2, 4))
    (x,), (weight,) = arrays["inputs"], arrays["parameters"]
    y = numbers(record, "output")
    skipped = (y == x).all((1, 2))
    assert 0 < skipped.sum() < 16
    taken = x + x @ weight.T / 0.25
    np.testing.assert_allclose(y[~skipped], taken[~skipped], rtol=1e-12, atol=1e-14)


def test_samples_exit_by_their_first_value(torch_subject):
    record, arrays = run(torch_subject, "early_exit", input=(16, 2, 4), input_requires_grad=True)
    (x,), (weight,) = arrays["inputs"], arrays["parameters"]
    y = numbers(record, "output")
    exits = x[:, 0, 0] > 0
    assert 0 < exits.sum() < 16
    np.testing.assert_array_equal(y[exits], x[exits])
    taken = (x + x @ weight.T)[~exits]
    np.testing.assert_allclose(y[~exits], taken, rtol=1e-12, atol=1e-14)
    assert not record.get("draws")


def test_a_hook_multiplies_the_gradient_and_leaves_the_value(torch_subject):
    record, arrays = run(torch_subject, {"kind": "hooked", "p": -1.0}, input_requires_grad=True)
    np.testing.assert_array_equal(numbers(record, "output"), arrays["inputs"][0])
    plain, _ = run(torch_subject, {"kind": "flatten"}, input_requires_grad=True)
    np.testing.assert_array_equal(numbers(record, "input_gradient"), -numbers(plain, "input_gradient"))


@pytest.mark.parametrize("segments", [[], [segment(0, 2), segment(2, 3)]])
def test_partial_backwards_add_up_to_whole_ones(torch_subject, segments):
    layers = ["linear", "tanh", {"kind": "linear", "features": 2}]
    for more in ({}, {"backwards": 2}, {"input_requires_grad": False}):
        protocol = {"input_requires_grad": True, **more}
        whole, _ = run(torch_subject, *layers, **protocol)
        parts, _ = run(torch_subject, *layers, **protocol, partial=True, segments=segments)
        assert observed(parts).keys() == observed(whole).keys()
        for key, found in observed(whole).items():
            assert observed(parts)[key].get("data") == found.get("data"), key


def test_a_further_output_has_a_loss_of_its_own_the_mean_of_its_squares(torch_subject):
    layers = ["tanh", {"kind": "split", "features": 1}]
    protocol = {"input": (2, 3), "input_requires_grad": True}
    one, _ = run(torch_subject, *layers, **protocol)
    record, arrays = run(torch_subject, *layers, **protocol, auxiliary_losses=True)
    (x,) = arrays["inputs"]
    second = np.tanh(x)[:, 1:]
    np.testing.assert_allclose(numbers(record, "loss", index=1), (second**2).mean(), rtol=1e-14)
    added = numbers(record, "input_gradient") - numbers(one, "input_gradient")
    expected = np.zeros_like(x)
    expected[:, 1:] = 2 * second / second.size * (1 - second**2)
    np.testing.assert_allclose(added, expected, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("kind", ["dropout", "gaussian_noise", "batch_norm", "rrelu"])
def test_a_layer_in_eval_mode_is_so_in_a_model_that_trains(torch_subject, kind):
    p = {"p": 0.5} if kind in ("dropout", "gaussian_noise") else {}
    layer = {"kind": kind, "eval": True, **p}
    trained, _ = run(torch_subject, layer)
    evaluated, _ = run(torch_subject, layer, train=False)
    np.testing.assert_array_equal(numbers(trained, "output"), numbers(evaluated, "output"))
    if kind == "batch_norm":
        np.testing.assert_array_equal(numbers(trained, "buffer"), np.zeros(4))


def test_evaluation_drops_nothing_and_uses_the_running_statistics(torch_subject):
    for layer in ("dropout", {"kind": "gaussian_noise", "p": 1.0}, "duplicate"):
        record, arrays = run(torch_subject, layer, train=False)
        np.testing.assert_array_equal(numbers(record, "output"), arrays["inputs"][0])
    record, arrays = run(torch_subject, "rrelu", train=False)
    x = arrays["inputs"][0]
    np.testing.assert_allclose(numbers(record, "output"), np.where(x > 0, x, x * 11 / 48), rtol=1e-12)
    record, arrays = run(torch_subject, "batch_norm", train=False)
    x, (w, b) = arrays["inputs"][0], arrays["parameters"]
    np.testing.assert_allclose(numbers(record, "output"), x / np.sqrt(1 + EPS) * w + b, rtol=1e-12)


def test_inputs_of_autocast_are_rounded_to_bfloat16(torch_subject):
    case = chain("linear", input=(2, 3), protocol={"autocast": "forward"})
    (output, *_) = torch_subject.record(**run_of(case))["observations"]
    assert output["dtype"] == "bfloat16"
