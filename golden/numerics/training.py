"""What PyTorch's optimizers make of weights, and a few steps of two small models."""

import torch
import torch.nn.functional as F
from exact import DTYPES, cast, classes, positive, random, stored


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
