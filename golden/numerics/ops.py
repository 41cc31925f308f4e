"""What PyTorch computes for every op: results and gradients."""

import torch
import torch.nn.functional as F
from exact import DTYPES, cast, classes, positive, random, stored
from functions import (
    attention,
    avg_pool2d,
    batch_norm,
    conv2d,
    delayed_float8,
    delayed_scaling,
    early_exit,
    embedding,
    group_norm,
    gru,
    hooked,
    kv_cache,
    layer_norm,
    linear,
    lstm,
    max_pool2d,
    moe,
    rms_norm,
    rotary,
    spectral_norm,
    split,
    stochastic_depth,
)


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
