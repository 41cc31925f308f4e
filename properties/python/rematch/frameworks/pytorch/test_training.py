"""Training steps of a model: several inputs, optimizers, clipping, a scaler."""

from __future__ import annotations

import numpy as np
import pytest
from cases import chain, observed, run_of, segment

from rematch.frameworks.pytorch.test_numbers import numbers, run
from rematch.subjects.arrays import decode, encode

pytest.importorskip("torch")


def test_gradients_are_clipped_to_a_norm_after_they_are_recorded(torch_subject):
    layer = {"kind": "linear", "features": 2, "bias": False}
    record, arrays = run(torch_subject, layer, clip=0.5, learning_rate=1.0)
    gradient = numbers(record, "parameter_gradient")
    assert np.linalg.norm(gradient) > 0.5
    moved = arrays["parameters"][0] - numbers(record, "parameter")
    np.testing.assert_allclose(np.linalg.norm(moved), 0.5, rtol=1e-5)
    np.testing.assert_allclose(moved / 0.5, gradient / np.linalg.norm(gradient), rtol=1e-5)


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


def test_sgd_keeps_a_momentum_that_begins_with_the_gradient(torch_subject):
    record, arrays = run(torch_subject, "linear", steps=2, learning_rate=0.5, momentum=0.9)
    weight = arrays["parameters"][0]
    first, second = (numbers(record, "parameter_gradient", step=s) for s in (0, 1))
    after = weight - 0.5 * first - 0.5 * (0.9 * first + second)
    np.testing.assert_allclose(numbers(record, "parameter", step=1), after, rtol=1e-12)


def test_adam_corrects_its_moments(torch_subject):
    record, arrays = run(torch_subject, "linear", optimizer="adam", learning_rate=0.1)
    weight, gradient = arrays["parameters"][0], numbers(record, "parameter_gradient")
    after = weight - 0.1 * gradient / (np.abs(gradient) + 1e-8)
    np.testing.assert_allclose(numbers(record, "parameter"), after, rtol=1e-9)


def test_prior_gradients_are_ones(torch_subject):
    plain, _ = run(torch_subject, "linear")
    prior, _ = run(torch_subject, "linear", prior_gradients=True)
    np.testing.assert_allclose(
        numbers(prior, "parameter_gradient"), numbers(plain, "parameter_gradient") + 1, rtol=1e-12
    )


@pytest.mark.parametrize("plan", [{"segments": [segment(0, 2, "reentrant")]}, {"sequential": {"segments": 2}}])
def test_further_inputs_reach_the_layers_that_read_them_and_some_have_gradients(torch_subject, plan):
    layers = [{"kind": "mul", "from": [-1, 1]}, {"kind": "add", "from": [-1, 2]}]
    protocol = {"further_inputs_with_grad": 1, "reevaluate": True}
    case = chain(*layers, input=(2, 3), dtype="float64", plan=plan, protocol=protocol)
    sent = run_of(case | {"further_inputs": 2})
    arrays = sent["arrays"]
    x, target = decode(arrays["inputs"][0]), decode(arrays["targets"][0])
    u1, u2 = (decode(a) for a in arrays["further_inputs"][0])
    for checkpointed in (False, True):
        record = torch_subject.record(**sent, checkpointed=checkpointed)
        np.testing.assert_array_equal(numbers(record, "output"), x * u1 + u2)
        slope = 2 * (x * u1 + u2 - target) / x.size
        np.testing.assert_allclose(numbers(record, "input_gradient", index=1), slope * x)
        places = [("input_gradient", 0, 0, index) for index in range(3)]
        present = [observed(record)[place].get("present", True) for place in places]
        assert present == [False, True, False]
        at = decode(arrays["reevaluation"])
        v1, v2 = (decode(a) for a in arrays["further_reevaluation_inputs"])
        np.testing.assert_array_equal(numbers(record, "reevaluation"), at * v1 + v2)
