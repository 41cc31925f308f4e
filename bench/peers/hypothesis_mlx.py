"""MLX's mx.checkpoint() under Hypothesis: hypothesis_mlx.py --help"""

from importlib.metadata import version

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from gradients import SAFE, Case, Layer, Meeting, Peer, main
from mlx.utils import tree_flatten

mx.set_default_device(mx.cpu)


class Flatten(nn.Module):
    def __call__(self, x: mx.array) -> mx.array:
        return mx.flatten(x, 1)


def make(layer: Layer) -> nn.Module:
    i, o = layer.inputs, layer.outputs
    return {
        "linear": lambda: nn.Linear(i, o),
        "conv": lambda: nn.Conv2d(i, o, 3, padding=1),
        "relu": nn.ReLU,
        "gelu": nn.GELU,
        "tanh": nn.Tanh,
        "layer_norm": lambda: nn.LayerNorm(i),
        "pool": lambda: nn.MaxPool2d(2, 2),
        "flatten": Flatten,
        "dropout": lambda: nn.Dropout(0.25),
        "batch_norm": lambda: nn.BatchNorm(i),
    }[layer.kind]()


def apply(case: Case, segment: nn.Module, x: mx.array, checkpointed: bool) -> mx.array:
    parameters, outputs = segment.trainable_parameters(), case.options["outputs"]
    if case.options["parameters"] == "closed over":

        def function(x: mx.array) -> tuple[mx.array, ...]:
            return (segment(x),) * outputs

        found = (mx.checkpoint(function) if checkpointed else function)(x)
    else:

        def function(parameters: dict, x: mx.array) -> tuple[mx.array, ...]:
            segment.update(parameters)
            return (segment(x),) * outputs

        inner = mx.checkpoint(function) if checkpointed else function
        if case.options["nested"] and checkpointed:
            inner = mx.checkpoint(inner)
        found = inner(parameters, x)
    return sum(y * (n + 1) for n, y in enumerate(found))


def run(case: Case, checkpointed: bool) -> list[np.ndarray]:
    mx.random.seed(case.seed)
    layers = [make(layer) for layer in case.layers]
    model = nn.Sequential(*(nn.Sequential(*layers[begin:end]) for begin, end in case.segments))

    def loss_of(parameters: dict, x: mx.array) -> mx.array:
        model.update(parameters)
        for segment in model.layers:
            x = apply(case, segment, x, checkpointed)
        return x.square().sum()

    x = mx.array(case.input())
    if x.ndim == 4:
        x = x.transpose(0, 2, 3, 1)
    loss, gradients = mx.value_and_grad(loss_of, argnums=(0, 1))(model.trainable_parameters(), x)
    return [np.array(loss), *(np.array(g) for _, g in tree_flatten(gradients))]


main(
    Peer(
        {"mlx": version("mlx")},
        run,
        [*SAFE, "dropout", "batch_norm"],
        {"parameters": ["given", "closed over"], "outputs": [1, 2], "nested": [False, True]},
        {
            "implicit-key-moves-on": Meeting(["dropout"]),
            "running-statistics-twice": Meeting(["batch_norm"]),
            "same-array-returned-twice": Meeting(options={"outputs": [2]}),
            "needless-recomputation": Meeting(options={"nested": [True]}),
            "closed-over-arrays-frozen": Meeting(options={"parameters": ["closed over"]}),
        },
    )
)
