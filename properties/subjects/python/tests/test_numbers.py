"""What layers, losses and optimizers compute, against their definitions in plain NumPy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from cases import chain, run_of
from conftest import observed

from rematch.arrays import decode, encode

pytest.importorskip("torch")

EPS = 1e-5
erf = np.vectorize(math.erf)


def numbers(record, quantity, **place):
    key = (quantity, place.get("step", 0), place.get("microbatch", 0), place.get("index", 0))
    return decode(observed(record)[key])


def run(subject, *layers, input=(3, 4), **protocol):
    case = chain(*layers, input=input, dtype="float64", protocol=protocol)
    sent = run_of(case)
    return subject.record(**sent), {
        name: [decode(a) for a in arrays]
        for name, arrays in sent["arrays"].items()
        if isinstance(arrays, list)
    }


def normalised(x, axes):
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + EPS)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@pytest.mark.parametrize(
    ("layer", "expected"),
    [
        ("linear", lambda x, w: x @ w[0].T + w[1]),
        ({"kind": "linear", "features": 2, "bias": False}, lambda x, w: x @ w[0].T),
        ("relu", lambda x, w: np.maximum(x, 0)),
        ("gelu", lambda x, w: x * (1 + erf(x / np.sqrt(2))) / 2),
        ("silu", lambda x, w: x / (1 + np.exp(-x))),
        ("tanh", lambda x, w: np.tanh(x)),
        ("sigmoid", lambda x, w: 1 / (1 + np.exp(-x))),
        ("softmax", lambda x, w: softmax(x)),
        ("layer_norm", lambda x, w: normalised(x, -1) * w[0] + w[1]),
        ("batch_norm", lambda x, w: normalised(x, 0) * w[0] + w[1]),
        (
            {"kind": "group_norm", "groups": 2},
            lambda x, w: normalised(x.reshape(3, 2, 2), -1).reshape(3, 4) * w[0] + w[1],
        ),
        ("rms_norm", lambda x, w: x / np.sqrt((x * x).mean(-1, keepdims=True) + EPS) * w[0]),
        ({"kind": "add", "from": [-1, 0]}, lambda x, w: x + x),
        ({"kind": "concat", "from": [-1, 0]}, lambda x, w: np.concatenate([x, x], 1)),
        ({"kind": "split", "features": 1}, lambda x, w: x[:, :1]),
        ("duplicate", lambda x, w: x),
    ],
    ids=str,
)
def test_a_layer_computes_its_definition(torch_subject, layer, expected):
    record, arrays = run(torch_subject, layer)
    output = numbers(record, "output")
    np.testing.assert_allclose(
        output, expected(arrays["inputs"][0], arrays["parameters"]), rtol=1e-12, atol=1e-14
    )


def test_pools_pad_with_zeros_or_with_nothing(torch_subject):
    for kind, expected in (("avg_pool2d", 1 / 4), ("max_pool2d", 1.0)):
        layer = {"kind": kind, "kernel": 2, "stride": 2, "padding": 1}
        case = run_of(chain(layer, input=(1, 1, 2, 2), dtype="float64"))

        case["arrays"]["inputs"][0] = encode(np.ones((1, 1, 2, 2)))
        output = numbers(torch_subject.record(**case), "output")
        np.testing.assert_array_equal(output, np.full((1, 1, 2, 2), expected))


def test_convolution_slides_without_turning_the_kernel(torch_subject):
    layer = {"kind": "conv2d", "features": 2, "kernel": 2, "stride": 2, "padding": 0}
    record, arrays = run(torch_subject, layer, input=(1, 3, 4, 4))
    x, (w, b) = arrays["inputs"][0], arrays["parameters"]
    first = (x[0, :, :2, :2] * w[1]).sum() + b[1]
    np.testing.assert_allclose(numbers(record, "output")[0, 1, 0, 0], first, rtol=1e-12)


def test_running_statistics_take_a_tenth_of_the_unbiased_variance(torch_subject):
    record, arrays = run(torch_subject, "batch_norm")
    x = arrays["inputs"][0]
    np.testing.assert_allclose(numbers(record, "buffer"), 0.1 * x.mean(0), rtol=1e-12)
    np.testing.assert_allclose(
        numbers(record, "buffer", index=1), 0.9 + 0.1 * x.var(0, ddof=1), rtol=1e-12
    )


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


def test_an_embedding_looks_tokens_up_and_lends_its_weight_to_a_head(torch_subject):
    embed = {"kind": "embedding", "vocabulary": 5, "features": 2}
    head = {"kind": "linear", "features": 5, "bias": False, "tied_to": 0}
    record, arrays = run(torch_subject, embed, head, input=(3, 4))
    tokens, (weight,) = arrays["inputs"][0], arrays["parameters"]
    np.testing.assert_allclose(
        numbers(record, "output"), weight[tokens] @ weight.T, rtol=1e-12, atol=1e-14
    )


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
    np.testing.assert_allclose(
        numbers(record, "output"), np.where(x > 0, x, x * 11 / 48), rtol=1e-12
    )
    record, arrays = run(torch_subject, "batch_norm", train=False)
    x, (w, b) = arrays["inputs"][0], arrays["parameters"]
    np.testing.assert_allclose(numbers(record, "output"), x / np.sqrt(1 + EPS) * w + b, rtol=1e-12)


def test_the_losses_are_means(torch_subject):
    record, arrays = run(torch_subject, "tanh")
    y, target = numbers(record, "output"), arrays["targets"][0]
    np.testing.assert_allclose(numbers(record, "loss"), ((y - target) ** 2).mean(), rtol=1e-12)
    record, arrays = run(torch_subject, "tanh", loss="cross_entropy")
    y, target = numbers(record, "output"), arrays["targets"][0]
    chosen = np.log(softmax(y))[np.arange(3), target]
    np.testing.assert_allclose(numbers(record, "loss"), -chosen.mean(), rtol=1e-12)


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


def test_gradients_are_the_slope_of_the_loss(torch_subject):
    sent = run_of(chain("linear", "gelu", "layer_norm", "linear", dtype="float64"))

    record = torch_subject.record(**sent)
    weight = decode(sent["arrays"]["parameters"][0])
    direction = np.random.default_rng(3).standard_normal(weight.shape)
    losses = []
    for distance in (1e-5, -1e-5):
        sent["arrays"]["parameters"][0] = encode(weight + distance * direction)
        losses.append(float(numbers(torch_subject.record(**sent), "loss")))
    slope = (losses[0] - losses[1]) / 2e-5
    promised = (numbers(record, "parameter_gradient") * direction).sum()
    np.testing.assert_allclose(promised, slope, rtol=1e-6)


def test_inputs_of_autocast_are_rounded_to_bfloat16(torch_subject):
    case = chain("linear", input=(2, 3), protocol={"autocast": "forward"})
    (output, *_) = torch_subject.record(**run_of(case))["observations"]
    assert output["dtype"] == "bfloat16"
