"""Layers, losses and optimizers against their definitions in plain NumPy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from cases import chain, observed, run_of, segment

from rematch.arrays import decode, encode

pytest.importorskip("torch")

EPS = 1e-5
erf = np.vectorize(math.erf)


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
    np.testing.assert_allclose(output, expected(arrays["inputs"][0], arrays["parameters"]), rtol=1e-12, atol=1e-14)


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
    np.testing.assert_allclose(numbers(record, "buffer", index=1), 0.9 + 0.1 * x.var(0, ddof=1), rtol=1e-12)


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


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def gru_step(x, h, c, w):
    bias = w[2:] or [0, 0]
    reset, update, new = np.split(x @ w[0].T + bias[0], 3, -1)
    of_h = np.split(h @ w[1].T + bias[1], 3, -1)
    n = np.tanh(new + sigmoid(reset + of_h[0]) * of_h[2])
    z = sigmoid(update + of_h[1])
    return (1 - z) * n + z * h, c


def lstm_step(x, h, c, w):
    i, f, g, o = np.split(x @ w[0].T + h @ w[1].T + sum(w[2:]), 4, -1)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("kind", "step"), [("gru", gru_step), ("lstm", lstm_step)])
def test_a_recurrent_layer_hands_its_states_on_from_zeros(torch_subject, kind, step, bias):
    layer = {"kind": kind, "features": 5, "bias": bias}
    for train in (True, False):
        record, arrays = run(torch_subject, layer, input=(2, 3, 4), train=train)
        h = c = np.zeros((2, 5))
        states = []
        for t in range(3):
            h, c = step(arrays["inputs"][0][:, t], h, c, arrays["parameters"])
            states.append(h)
        np.testing.assert_allclose(numbers(record, "output"), np.stack(states, 1), rtol=1e-12, atol=1e-14)


def spectral(x, weight, bias, u, v, training=True):
    if training:
        v = weight.T @ u / np.linalg.norm(weight.T @ u)
        u = weight @ v / np.linalg.norm(weight @ v)
    return x @ weight.T / (u @ weight @ v) + bias, u, v


def test_a_weight_is_divided_by_what_the_power_iteration_makes_of_it(torch_subject):
    layer = {"kind": "spectral_norm", "features": 3}
    record, arrays = run(torch_subject, layer, input=(2, 4, 5), microbatches=2)
    given = (*arrays["parameters"], np.full(3, 3**-0.5), np.full(5, 5**-0.5))
    first, u, v = spectral(arrays["inputs"][0], *given)
    second, u, v = spectral(arrays["inputs"][1], *arrays["parameters"], u, v)
    close = {"rtol": 1e-12, "atol": 1e-14}
    np.testing.assert_allclose(numbers(record, "output"), first, **close)
    np.testing.assert_allclose(numbers(record, "output", microbatch=1), second, **close)
    np.testing.assert_allclose(numbers(record, "buffer"), u, **close)
    np.testing.assert_allclose(numbers(record, "buffer", index=1), v, **close)
    record, arrays = run(torch_subject, layer, input=(2, 5), train=False)
    evaluated, _, _ = spectral(arrays["inputs"][0], *arrays["parameters"], *given[2:], False)
    np.testing.assert_allclose(numbers(record, "output"), evaluated, **close)
    np.testing.assert_array_equal(numbers(record, "buffer"), given[2])


def test_a_normalised_weight_has_the_gradient_of_the_parametrization(torch_subject):
    torch = pytest.importorskip("torch")
    layer = {"kind": "spectral_norm", "features": 3}
    record, arrays = run(torch_subject, layer, input=(4, 5))
    module = torch.nn.Linear(5, 3, dtype=torch.float64)
    with torch.no_grad():
        for own, given in zip(module.parameters(), arrays["parameters"], strict=True):
            own.copy_(torch.tensor(given))
    torch.nn.utils.spectral_norm(module, eps=1e-12)
    module.weight_u.fill_(3**-0.5)
    loss = torch.nn.functional.mse_loss(module(torch.tensor(arrays["inputs"][0])), torch.tensor(arrays["targets"][0]))
    loss.backward()
    np.testing.assert_allclose(numbers(record, "parameter_gradient"), module.weight_orig.grad, rtol=1e-12, atol=1e-14)


def test_every_sequence_stands_behind_what_the_forwards_before_left(torch_subject):
    layer = {"kind": "kv_cache", "kept": 2}
    record, arrays = run(torch_subject, layer, input=(3, 1, 4), microbatches=2)
    first, second = arrays["inputs"]
    cache = np.full((3, 2, 4), 0.5)
    behind = np.concatenate((cache, first), 1)
    np.testing.assert_array_equal(numbers(record, "output"), behind)
    kept = np.repeat(behind[:1, 1:], 3, 0)
    second = np.concatenate((kept, second), 1)
    np.testing.assert_array_equal(numbers(record, "output", microbatch=1), second)
    np.testing.assert_array_equal(numbers(record, "buffer"), second[0, 1:])
    record, arrays = run(torch_subject, layer, input=(3, 1, 4), train=False)
    np.testing.assert_array_equal(numbers(record, "output")[:, :2], cache)
    np.testing.assert_array_equal(numbers(record, "buffer"), cache[0])


@pytest.mark.parametrize("top", [1, 2])
def test_a_mixture_of_experts_computes_its_definition(torch_subject, top):
    layer = {"kind": "moe", "experts": 3, "top": top}
    record, arrays = run(torch_subject, layer, input=(2, 3, 4))
    (x,), (router, experts) = arrays["inputs"], arrays["parameters"]
    p = softmax(x @ router.T)
    chosen = np.argsort(-p, axis=-1, kind="stable")[..., :top]
    used = (chosen[..., None] == np.arange(3)).any(2)
    expected = np.einsum("bte,bte,egf,btf->btg", p, used, experts, x)
    np.testing.assert_allclose(numbers(record, "output"), expected, rtol=1e-12, atol=1e-14)
    np.testing.assert_array_equal(numbers(record, "buffer"), used.sum((0, 1)))
    record, arrays = run(torch_subject, layer, input=(2, 3, 4), train=False)
    np.testing.assert_array_equal(numbers(record, "buffer"), np.zeros(3))


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


def test_rotary_positions_turn_pairs_of_a_heads_features(torch_subject):
    turned = {"kind": "rotary", "features": 4, "heads": 1}
    record, arrays = run(torch_subject, turned, input=[2, 3, 5])
    x = arrays["inputs"][0]
    angle = np.arange(3)[:, None] * [1, 0.01]
    first, second = x[..., :2], x[..., 2:4]
    expected = np.concatenate(
        [first * np.cos(angle) - second * np.sin(angle), second * np.cos(angle) + first * np.sin(angle), x[..., 4:]], -1
    )
    # Three roundings, of numbers below 3 in magnitude.
    np.testing.assert_allclose(numbers(record, "output"), expected, rtol=0, atol=2e-15)


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


def test_an_embedding_looks_tokens_up_and_lends_its_weight_to_a_head(torch_subject):
    embed = {"kind": "embedding", "vocabulary": 5, "features": 2}
    head = {"kind": "linear", "features": 5, "bias": False, "tied_to": 0}
    record, arrays = run(torch_subject, embed, head, input=(3, 4))
    tokens, (weight,) = arrays["inputs"][0], arrays["parameters"]
    np.testing.assert_allclose(numbers(record, "output"), weight[tokens] @ weight.T, rtol=1e-12, atol=1e-14)


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


def test_the_losses_are_means(torch_subject):
    record, arrays = run(torch_subject, "tanh")
    y, target = numbers(record, "output"), arrays["targets"][0]
    np.testing.assert_allclose(numbers(record, "loss"), ((y - target) ** 2).mean(), rtol=1e-12)
    record, arrays = run(torch_subject, "tanh", loss="cross_entropy")
    y, target = numbers(record, "output"), arrays["targets"][0]
    chosen = np.log(softmax(y))[np.arange(3), target]
    np.testing.assert_allclose(numbers(record, "loss"), -chosen.mean(), rtol=1e-12)


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
