"""Writes what PyTorch computes for every op of the engine: see golden/make_numerics.

One entry per (case, dtype), one per line, so that a difference names the case. An entry holds
  name, op, dtype, attributes
  inputs            operands by name, in the order of the engine's op
  outputs           what the op returned
  output_gradients  the cotangents given to backward
  gradients         by operand, for those that are differentiable
  after             operands that the op changed in place, by name
Entries of optimizers and models have `inputs` and `after` only. All values are exact: inputs are
multiples of 1/128, and floats are written with the shortest decimals that give the same float64.
"""

import json
import sys
from types import SimpleNamespace

import torch
import torch.nn.functional as F
from torch.nn.utils.spectral_norm import SpectralNorm

FORMAT = 1
DTYPES = {"float32": torch.float32, "float64": torch.float64}


def random(*shape, seed=0, low=-192, high=192):
    """Multiples of 1/128 in [low, high) / 128. A generator of our own: torch's may change."""
    count = 1
    for extent in shape:
        count *= extent
    state = 0x9E3779B9 * (seed + 1) & 0xFFFFFFFF
    values = []
    for _ in range(count):
        state ^= state << 13 & 0xFFFFFFFF
        state ^= state >> 17
        state ^= state << 5 & 0xFFFFFFFF
        values.append((low + state % (high - low)) / 128)
    return torch.tensor(values, dtype=torch.float64).reshape(shape)


def positive(*shape, seed=0):
    return random(*shape, seed=seed, low=64, high=256)


def classes(*values):
    return torch.tensor(values, dtype=torch.int64)


def stored(tensor):
    dtype = "int32" if tensor.dtype == torch.int64 else str(tensor.dtype).removeprefix("torch.")
    return {"shape": list(tensor.shape), "dtype": dtype, "values": tensor.flatten().tolist()}


def cast(inputs, dtype):
    return {
        name: value.to(dtype) if value.is_floating_point() else value.clone()
        for name, value in inputs.items()
    }


def op_entries(name, op, function, inputs, attributes=None, constants=(), changed=()):
    """`constants` get no gradient; `changed` are written in place (and are constants)."""
    for dtype_name, dtype in DTYPES.items():
        operands = cast(inputs, dtype)
        given = {key: stored(value) for key, value in operands.items()}
        differentiable = [
            key
            for key, value in operands.items()
            if value.is_floating_point() and key not in constants and key not in changed
        ]
        for key in differentiable:
            operands[key].requires_grad_()
        outputs = function(*operands.values(), **(attributes or {}))
        outputs = outputs if isinstance(outputs, (tuple, list)) else (outputs,)
        cotangents = [
            random(*out.shape, seed=77 + i).to(dtype) for i, out in enumerate(outputs)
        ]
        gradients = torch.autograd.grad(
            outputs, [operands[key] for key in differentiable], cotangents
        )
        yield {
            "name": name,
            "op": op,
            "dtype": dtype_name,
            "attributes": attributes or {},
            "inputs": given,
            "outputs": [stored(out.detach()) for out in outputs],
            "output_gradients": [stored(c) for c in cotangents],
            "gradients": {
                key: stored(gradient) for key, gradient in zip(differentiable, gradients)
            },
            "after": {key: stored(operands[key]) for key in changed},
        }


def linear(x, weight, bias=None):
    return F.linear(x, weight, bias)


def conv2d(x, weight, bias=None, stride=1, padding=0):
    return F.conv2d(x, weight, bias, stride=stride, padding=padding)


def max_pool2d(x, kernel, stride, padding):
    return F.max_pool2d(x, kernel, stride, padding)


def avg_pool2d(x, kernel, stride, padding):
    return F.avg_pool2d(x, kernel, stride, padding)


def batch_norm(x, weight, bias, running_mean, running_var, train, momentum, eps):
    return F.batch_norm(x, running_mean, running_var, weight, bias, train, momentum, eps)


def layer_norm(x, weight, bias, eps):
    return F.layer_norm(x, weight.shape, weight, bias, eps)


def rms_norm(x, weight, eps):
    return F.rms_norm(x, weight.shape, weight, eps)


def group_norm(x, weight, bias, groups, eps):
    return F.group_norm(x, groups, weight, bias, eps)


def split(x, first):
    return torch.split(x, [first, x.shape[1] - first], dim=1)


def embedding(tokens, weight):
    return F.embedding(tokens, weight)


def delayed_scaling(x, scale, train):
    y = x / scale.clone()
    if train:
        scale.copy_(scale * 0.5 + x.detach().abs().max() * 0.5)
    return y


class Float8(torch.autograd.Function):
    """x in float8, in units of a scale. Its gradient passes as if nothing were rounded."""

    @staticmethod
    def forward(context, x, scale):
        return (x / scale).clamp(-448, 448).to(torch.float8_e4m3fn).to(x.dtype) * scale

    @staticmethod
    def backward(context, gradient):
        return gradient, None


def delayed_float8(x, history, train):
    top = history.max()
    y = Float8.apply(x, torch.where(top > 0, top / 448, 1.0))
    if train:
        history.copy_(torch.cat((history[1:], x.detach().abs().max().view(1))))
    return y


def spectral_norm(x, weight, bias, u, v, train):
    module = SimpleNamespace(weight_orig=weight, weight_u=u, weight_v=v)
    return F.linear(x, SpectralNorm().compute_weight(module, do_power_iteration=train), bias)


def kv_cache(x, cache, train):
    y = torch.cat((cache.expand(len(x), -1, -1), x), 1)
    if train:
        cache.copy_(y.detach()[0, -len(cache) :])
    return y


def attention(x, memory, heads, causal, fused):
    """Query i sees keys 0 .. i + keys - queries. `fused` is the engine's way to save less."""
    size = x.shape[2] // heads
    q, k, v = (t.unflatten(2, (-1, size)).transpose(1, 2) for t in (x, *memory.chunk(2, 2)))
    k, v = (t.repeat_interleave(heads // t.shape[1], 1) for t in (k, v))
    scores = q @ k.transpose(2, 3) / size**0.5
    if causal:
        seen = torch.ones(scores.shape[2:], dtype=torch.bool).tril(k.shape[2] - q.shape[2])
        scores = scores.masked_fill(~seen, -torch.inf)
    return (scores.softmax(3) @ v).transpose(1, 2).flatten(2)


def rotary(x, features, heads):
    """Two features of a head are a complex number, which is turned by a product."""
    size = features // heads
    speed = 10000.0 ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
    angle = torch.arange(x.shape[1])[:, None, None] * speed
    pairs = x[..., :features].unflatten(-1, (heads, 2, -1)).transpose(-1, -2).contiguous()
    pairs = torch.view_as_complex(pairs)
    turned = pairs * torch.polar(torch.ones_like(angle), angle).to(pairs.dtype)
    turned = torch.view_as_real(turned).transpose(-1, -2).flatten(-3)
    return torch.cat((turned, x[..., features:]), -1)


def hooked(x, factor):
    y = x.clone()
    y.register_hook(lambda gradient: factor * gradient)
    return y


def moe(x, router, experts, load, top, train):
    """A row goes to the `top` likeliest experts, which no entry leaves to rounding."""
    rows = x.reshape(-1, x.shape[-1])
    p = F.linear(rows, router).softmax(1)
    chosen = p.detach().topk(top, dim=1).indices
    weights = torch.zeros_like(p).scatter(1, chosen, p.gather(1, chosen))
    if train:
        load += chosen.flatten().bincount(minlength=len(experts))
    outputs = torch.stack([F.linear(rows, expert) for expert in experts], 1)
    return (weights[:, :, None] * outputs).sum(1).view(x.shape)


def stochastic_depth(x, weight, p, train):
    """Where every sample takes the branch: in evaluation, or with a probability of 0 to skip it."""
    assert p == 0 or not train
    return x + F.linear(x, weight)


def early_exit(x, weight):
    stays = torch.where(~(x.flatten(1)[:, 0] > 0))[0]
    return x.index_add(0, stays, F.linear(x[stays], weight))


def gru(x, weight_ih, weight_hh, *biases):
    """The states from zeros on."""
    h = x.new_zeros(1, x.shape[0], weight_hh.shape[1])
    weights = [weight_ih, weight_hh, *biases]
    return torch.gru(x, h, weights, len(biases) > 0, 1, 0.0, True, False, True)[0]


def lstm(x, weight_ih, weight_hh, *biases):
    h = x.new_zeros(1, x.shape[0], weight_hh.shape[1])
    weights = [weight_ih, weight_hh, *biases]
    return torch.lstm(x, (h, h), weights, len(biases) > 0, 1, 0.0, True, False, True)[0]


def all_ops():
    yield from op_entries(
        "embedding",
        "embedding",
        embedding,
        {"tokens": classes(2, 0, 2, 2, 4, 0).reshape(2, 3), "weight": random(5, 3, seed=40)},
    )
    for train in [True, False]:
        yield from op_entries(
            f"delayed_scaling, {'training' if train else 'evaluation'}",
            "delayed_scaling",
            delayed_scaling,
            {"x": random(3, 5, seed=41), "scale": positive(1, seed=42)},
            {"train": train},
            changed=("scale",),
        )
    # Numbers that float8 has, and what lies between: ties, what is near them, and beyond.
    numbers = torch.arange(127, dtype=torch.uint8).view(torch.float8_e4m3fn).to(torch.float64)
    ties = (numbers[1:] + numbers[:-1]) / 2
    near = torch.cat([ties[::9] * factor for factor in (1 - 2.0**-20, 1 + 2.0**-20, 1 + 2.0**-40)])
    large = torch.tensor([449.0, -3000.0], dtype=torch.float64)
    dense = torch.cat([numbers[::5], -ties[::4], near, large])
    for name, x, history, train in [
        ("a scale of 1", dense.view(1, -1), torch.zeros(4, dtype=torch.float64), True),
        ("training", random(6, 7, seed=57), positive(4, seed=58), True),
        ("evaluation", random(3, 2, seed=59), positive(4, seed=60) / 2, False),
    ]:
        yield from op_entries(
            f"delayed_float8, {name}",
            "delayed_float8",
            delayed_float8,
            {"x": x, "history": history},
            {"train": train},
            changed=("history",),
        )
    for name, length, train in [("training", 4, True), ("short", 1, True), ("evaluation", 2, False)]:
        yield from op_entries(
            f"kv_cache, {name}",
            "kv_cache",
            kv_cache,
            {"x": random(2, length, 3, seed=50), "cache": random(2, 3, seed=51)},
            {"train": train},
            changed=("cache",),
        )
    for train in [True, False]:
        # Positive, so that nothing cancels.
        yield from op_entries(
            f"spectral_norm, {'training' if train else 'evaluation'}",
            "spectral_norm",
            spectral_norm,
            {
                "x": random(3, 4, seed=45),
                "weight": random(2, 4, seed=46, low=128),
                "bias": random(2, seed=47),
                "u": positive(2, seed=48),
                "v": positive(4, seed=49),
            },
            {"train": train},
            changed=("u", "v"),
        )
    for name, queries, keys, heads, memory_heads, causal in [
        ("one head", 3, 3, 1, 1, False),
        ("causal", 4, 4, 2, 2, True),
        ("causal, more keys", 2, 5, 2, 2, True),
        ("grouped queries", 3, 4, 6, 2, False),
    ]:
        for fused in [False, True]:
            yield from op_entries(
                f"attention, {name}{', fused' if fused else ''}",
                "attention",
                attention,
                {
                    "x": random(2, queries, heads * 3, seed=43),
                    "memory": random(2, keys, memory_heads * 6, seed=44),
                },
                {"heads": heads, "causal": causal, "fused": fused},
            )
    for name, width, features, heads in [("a head", 4, 4, 1), ("two heads and a rest", 9, 8, 2)]:
        yield from op_entries(
            f"rotary, {name}",
            "rotary",
            rotary,
            {"x": random(2, 3, width, seed=52)},
            {"features": features, "heads": heads},
        )
    for op, function, gates in [("gru", gru, 3), ("lstm", lstm, 4)]:
        for name, steps, biases in [("one step", 1, 2), ("two steps", 2, 2), ("no bias", 2, 0)]:
            # Bounds grow from step to step, with the weights.
            small = {"low": -32, "high": 32}
            inputs = {
                "x": random(2, steps, 3, seed=45),
                "weight_ih": random(gates * 3, 3, seed=46, **small),
                "weight_hh": random(gates * 3, 3, seed=47, **small),
                "bias_ih": random(gates * 3, seed=48, **small),
                "bias_hh": random(gates * 3, seed=49, **small),
            }
            given = dict(list(inputs.items())[: 3 + biases])
            yield from op_entries(f"{op}, {name}", op, function, given)

    for name, shape, experts, top, train in [
        ("one expert a row", (5, 3), 3, 1, True),
        ("two experts a row", (2, 3, 4), 4, 2, True),
        ("evaluation", (4, 2), 2, 2, False),
    ]:
        features = shape[-1]
        yield from op_entries(
            f"moe, {name}",
            "moe",
            moe,
            {
                "x": random(*shape, seed=45, low=-64, high=64),
                "router": random(experts, features, seed=46, low=-64, high=64),
                "experts": random(experts, features, features, seed=47, low=-64, high=64),
                "load": positive(experts, seed=48),
            },
            {"top": top, "train": train},
            changed=("load",),
        )

    for name, shape, p, train in [
        ("evaluation", (3, 5), 0.5, False),
        ("probability 0", (2, 3, 4), 0.0, True),
    ]:
        yield from op_entries(
            f"stochastic_depth, {name}",
            "stochastic_depth",
            stochastic_depth,
            {"x": random(*shape, seed=53), "weight": random(shape[-1], shape[-1], seed=54)},
            {"p": p, "train": train},
        )
    for name, shape in [("rows", (6, 5)), ("sequences", (4, 3, 4))]:
        yield from op_entries(
            f"early_exit, {name}",
            "early_exit",
            early_exit,
            {"x": random(*shape, seed=55), "weight": random(shape[-1], shape[-1], seed=56)},
        )

    for name, n, k, m, bias in [
        ("linear", 3, 5, 4, True),
        ("linear, no bias", 2, 17, 3, False),
        ("linear, one row", 1, 1, 1, True),
    ]:
        inputs = {"x": random(n, k, seed=1), "weight": random(m, k, seed=2)}
        if bias:
            inputs["bias"] = random(m, seed=3)
        yield from op_entries(name, "linear", linear, inputs)

    for name, shape, out, kernel, stride, padding, bias in [
        ("conv2d", (2, 3, 5, 4), 2, (3, 3), 1, 0, True),
        ("conv2d, padding", (1, 2, 4, 4), 3, (3, 3), 1, 1, True),
        ("conv2d, stride", (2, 1, 7, 6), 2, (3, 2), 2, 0, False),
        ("conv2d, stride and padding", (1, 2, 6, 5), 2, (3, 3), 2, 1, True),
        ("conv2d, kernel 1", (1, 3, 3, 3), 2, (1, 1), 1, 0, True),
    ]:
        inputs = {"x": random(*shape, seed=4), "weight": random(out, shape[1], *kernel, seed=5)}
        if bias:
            inputs["bias"] = random(out, seed=6)
        yield from op_entries(
            name, "conv2d", conv2d, inputs, {"stride": stride, "padding": padding}
        )

    for kind, function in [("max", max_pool2d), ("avg", avg_pool2d)]:
        for kernel, stride, padding in [(2, 2, 0), (3, 2, 1), (3, 1, 0), (2, 3, 1)]:
            yield from op_entries(
                f"{kind}_pool2d, kernel {kernel}, stride {stride}, padding {padding}",
                f"{kind}_pool2d",
                function,
                {"x": random(2, 2, 5, 6, seed=7)},
                {"kernel": kernel, "stride": stride, "padding": padding},
            )
    yield from op_entries(
        "max_pool2d, equal values",
        "max_pool2d",
        max_pool2d,
        {"x": torch.ones(1, 1, 4, 4, dtype=torch.float64)},
        {"kernel": 2, "stride": 1, "padding": 0},
    )

    for shape in [(6, 3), (2, 3, 3, 2)]:
        for train in [True, False]:
            yield from op_entries(
                f"batch_norm, rank {len(shape)}, {'training' if train else 'evaluation'}",
                "batch_norm",
                batch_norm,
                {
                    "x": random(*shape, seed=8),
                    "weight": random(3, seed=9),
                    "bias": random(3, seed=10),
                    "running_mean": random(3, seed=11),
                    "running_var": positive(3, seed=12),
                },
                {"train": train, "momentum": 0.25, "eps": 1e-5},
                changed=("running_mean", "running_var"),
            )

    for shape in [(7,), (3, 8), (2, 3, 5)]:
        yield from op_entries(
            f"layer_norm, rank {len(shape)}",
            "layer_norm",
            layer_norm,
            {
                "x": random(*shape, seed=13),
                "weight": random(shape[-1], seed=14),
                "bias": random(shape[-1], seed=15),
            },
            {"eps": 1e-5},
        )

    for shape, groups in [((5, 8), 2), ((3, 5), 1), ((2, 6, 3, 3), 3), ((3, 4, 5, 2), 4)]:
        yield from op_entries(
            f"group_norm, rank {len(shape)}, groups {groups}",
            "group_norm",
            group_norm,
            {
                "x": random(*shape, seed=80),
                "weight": random(shape[1], seed=81),
                "bias": random(shape[1], seed=82),
            },
            {"groups": groups, "eps": 1e-5},
        )

    for shape in [(7,), (3, 8), (2, 3, 5)]:
        yield from op_entries(
            f"rms_norm, rank {len(shape)}",
            "rms_norm",
            rms_norm,
            {"x": random(*shape, seed=83), "weight": random(shape[-1], seed=84)},
            {"eps": 1e-5},
        )

    wide = torch.cat([random(13, seed=16, low=-1024, high=1024), random(6, seed=17)])
    with_zero = torch.cat([wide, torch.zeros(1, dtype=torch.float64)]).reshape(4, 5)
    for name, function in [
        ("relu", F.relu),
        ("gelu", F.gelu),
        ("silu", F.silu),
        ("tanh", torch.tanh),
        ("sigmoid", torch.sigmoid),
        ("softmax", lambda x: F.softmax(x, dim=-1)),
    ]:
        yield from op_entries(name, name, function, {"x": with_zero})
    yield from op_entries(
        "leaky_relu",
        "leaky_relu",
        lambda x, slope: F.leaky_relu(x, slope),
        {"x": with_zero},
        {"slope": 0.3},
    )

    pair = {"a": random(3, 4, seed=18), "b": random(3, 4, seed=19)}
    yield from op_entries("add", "add", lambda a, b: a + b, pair)
    yield from op_entries("mul", "mul", lambda a, b: a * b, pair)
    yield from op_entries(
        "scale", "scale", lambda x, factor: x * factor, {"x": pair["a"]}, {"factor": 0.3}
    )
    yield from op_entries("hooked", "hooked", hooked, {"x": pair["a"]}, {"factor": -0.5})
    yield from op_entries("sum", "sum", torch.sum, {"x": random(37, seed=20)})
    yield from op_entries(
        "concat, rank 2",
        "concat",
        lambda a, b: torch.cat([a, b], dim=1),
        {"a": random(3, 2, seed=21), "b": random(3, 4, seed=22)},
    )
    yield from op_entries(
        "concat, rank 4",
        "concat",
        lambda a, b: torch.cat([a, b], dim=1),
        {"a": random(2, 1, 2, 3, seed=23), "b": random(2, 3, 2, 3, seed=24)},
    )
    yield from op_entries(
        "split, rank 2", "split", split, {"x": random(3, 5, seed=25)}, {"first": 2}
    )
    yield from op_entries(
        "split, rank 4", "split", split, {"x": random(2, 4, 2, 2, seed=26)}, {"first": 3}
    )
    yield from op_entries(
        "flatten", "flatten", lambda x: x.flatten(1), {"x": random(2, 3, 2, 2, seed=27)}
    )

    yield from op_entries(
        "mse_loss",
        "mse_loss",
        F.mse_loss,
        {"x": random(4, 3, seed=28), "target": random(4, 3, seed=29)},
        constants=("target",),
    )
    yield from op_entries(
        "cross_entropy",
        "cross_entropy",
        F.cross_entropy,
        {"x": random(4, 5, seed=30), "target": classes(0, 4, 2, 2)},
    )


def optimizer_entries(name, op, make, attributes, steps=5):
    for dtype_name, dtype in DTYPES.items():
        inputs = {"parameter": random(2, 3, seed=31)}
        for step in range(steps):
            # Off zero, so that Adam divides by nothing small.
            sign = torch.where(random(2, 3, seed=50 + step) < 0, -1.0, 1.0)
            inputs[f"gradient {step}"] = positive(2, 3, seed=40 + step) * sign
        inputs = cast(inputs, dtype)
        parameter = inputs["parameter"].clone().requires_grad_()
        optimizer = make([parameter], **attributes)
        after = {}
        for step in range(steps):
            parameter.grad = inputs[f"gradient {step}"].clone()
            optimizer.step()
            after[f"parameter {step}"] = stored(parameter.detach())
        yield {
            "name": name,
            "op": op,
            "dtype": dtype_name,
            "attributes": attributes,
            "inputs": {key: stored(value) for key, value in inputs.items()},
            "after": after,
        }


def all_optimizers():
    sgd, adam = torch.optim.SGD, torch.optim.Adam  # Adam's betas and eps: the defaults of both
    yield from optimizer_entries("sgd", "sgd", sgd, {"lr": 0.1, "momentum": 0.0})
    yield from optimizer_entries("sgd, momentum", "sgd", sgd, {"lr": 0.1, "momentum": 0.9})
    yield from optimizer_entries("adam", "adam", adam, {"lr": 0.05})


def mlp(x, target, p, _buffers):
    y = F.gelu(F.linear(x, p["weight 0"], p["bias 0"]))
    y = F.layer_norm(y, y.shape[1:], p["norm weight"], p["norm bias"])
    return F.mse_loss(F.linear(y, p["weight 1"], p["bias 1"]), target)


def cnn(x, target, p, buffers):
    y = F.conv2d(x, p["conv weight"], p["conv bias"], padding=1)
    y = F.batch_norm(
        y, buffers["running mean"], buffers["running var"], p["norm weight"], p["norm bias"], True
    )
    y = F.max_pool2d(F.relu(y), 2, 2)
    return F.cross_entropy(F.linear(y.flatten(1), p["weight"], p["bias"]), target)


def model_entries(name, model, data, parameters, buffers, steps=3, lr=0.125, momentum=0.5):
    for dtype_name, dtype in DTYPES.items():
        inputs = cast(data | parameters | buffers, dtype)
        trained = {key: inputs[key].clone().requires_grad_() for key in parameters}
        carried = {key: inputs[key].clone() for key in buffers}
        optimizer = torch.optim.SGD(trained.values(), lr=lr, momentum=momentum)
        after = {}
        for step in range(steps):
            optimizer.zero_grad()
            loss = model(inputs["x"], inputs["target"], trained, carried)
            loss.backward()
            optimizer.step()
            after[f"loss {step}"] = stored(loss.detach())
        after |= {key: stored(value.detach()) for key, value in (trained | carried).items()}
        yield {
            "name": name,
            "op": name,
            "dtype": dtype_name,
            "attributes": {"steps": steps, "lr": lr, "momentum": momentum},
            "inputs": {key: stored(value) for key, value in inputs.items()},
            "after": after,
        }


def all_models():
    yield from model_entries(
        "mlp",
        mlp,
        {"x": random(4, 3, seed=60), "target": random(4, 2, seed=61)},
        {
            "weight 0": random(5, 3, seed=62) / 2,
            "bias 0": random(5, seed=63) / 2,
            "norm weight": positive(5, seed=64),
            "norm bias": random(5, seed=65) / 2,
            "weight 1": random(2, 5, seed=66) / 2,
            "bias 1": random(2, seed=67) / 2,
        },
        {},
    )
    yield from model_entries(
        "cnn",
        cnn,
        {"x": random(2, 1, 4, 4, seed=70), "target": classes(1, 0)},
        {
            "conv weight": random(2, 1, 3, 3, seed=71) / 2,
            "conv bias": random(2, seed=72) / 2,
            "norm weight": positive(2, seed=73),
            "norm bias": random(2, seed=74) / 2,
            "weight": random(3, 8, seed=75) / 2,
            "bias": random(3, seed=76) / 2,
        },
        {
            "running mean": torch.zeros(2, dtype=torch.float64),
            "running var": torch.ones(2, dtype=torch.float64),
        },
    )


def main(path):
    torch.set_num_threads(1)
    entries = [*all_ops(), *all_optimizers(), *all_models()]
    head = {
        "format": FORMAT,
        "regenerate": "golden/make_numerics",
        "torch": torch.__version__.split("+")[0],
    }
    with open(path, "w", encoding="ascii", newline="\n") as file:
        file.write("{\n")
        for key, value in head.items():
            file.write(f"{json.dumps(key)}: {json.dumps(value)},\n")
        file.write('"ops": [\n')
        file.write(",\n".join(json.dumps(entry, allow_nan=False) for entry in entries))
        file.write("\n]}\n")


if __name__ == "__main__":
    main(sys.argv[1])
