"""Layers and steps whose numbers random cases seldom show: special values, ties, draws, overflow, clipping.

Hunts compare all layers with the reference engine (law `agrees-with-reference`).
"""

import math

import numpy as np
import pytest
from cases import chain, observed, run_of

from rematch.subjects.records import decode, encode


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


def test_inputs_of_autocast_are_rounded_to_bfloat16(torch_subject):
    case = chain("linear", input=(2, 3), protocol={"autocast": "forward"})
    (output, *_) = torch_subject.record(**run_of(case))["observations"]
    assert output["dtype"] == "bfloat16"


def test_a_step_whose_scaled_gradients_overflow_is_skipped_and_the_next_has_half_the_scale(torch_subject):
    layer = {"kind": "linear", "features": 1, "bias": False}
    protocol = {"steps": 2, "learning_rate": 0.25, "loss_scale": 2.0**126}
    sent = run_of(chain(layer, input=(1, 1), protocol=protocol))
    array = lambda value: encode(np.full((1, 1), value, np.float32))  # noqa: E731
    sent["arrays"] |= {"parameters": [array(3)], "inputs": [array(1)] * 2, "targets": [array(0)] * 2}
    record = torch_subject.record(**sent)
    # The gradient is 6, which 2^126 takes beyond the largest float32, and 2^125 does not.
    assert numbers(record, "loss") == 9
    assert numbers(record, "parameter_gradient") == np.inf
    assert numbers(record, "parameter") == 3
    assert numbers(record, "parameter_gradient", step=1) == 6 * 2.0**125
    assert numbers(record, "parameter", step=1) == 1.5


def test_gradients_are_clipped_to_a_norm_after_they_are_recorded(torch_subject):
    layer = {"kind": "linear", "features": 2, "bias": False}
    record, arrays = run(torch_subject, layer, clip=0.5, learning_rate=1.0)
    gradient = numbers(record, "parameter_gradient")
    assert np.linalg.norm(gradient) > 0.5
    moved = arrays["parameters"][0] - numbers(record, "parameter")
    np.testing.assert_allclose(np.linalg.norm(moved), 0.5, rtol=1e-5)
    np.testing.assert_allclose(moved / 0.5, gradient / np.linalg.norm(gradient), rtol=1e-5)


def test_a_hook_multiplies_the_gradient_and_leaves_the_value(torch_subject):
    record, arrays = run(torch_subject, {"kind": "hooked", "p": -1.0}, input_requires_grad=True)
    np.testing.assert_array_equal(numbers(record, "output"), arrays["inputs"][0])
    plain, _ = run(torch_subject, {"kind": "flatten"}, input_requires_grad=True)
    np.testing.assert_array_equal(numbers(record, "input_gradient"), -numbers(plain, "input_gradient"))
