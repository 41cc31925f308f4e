"""PaddlePaddle's recompute() under Hypothesis: hypothesis_paddle.py --help"""

import numpy as np
import paddle
from gradients import SAFE, Case, Layer, Meeting, Peer, main
from paddle import nn
from paddle.distributed.fleet.utils import recompute

paddle.set_device("cpu")


class NumpyDropout(nn.Layer):
    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        return x * paddle.to_tensor(np.random.binomial(1, 0.5, x.shape).astype(np.float32))


class OwnDropout(nn.Layer):
    """Dropout with a generator of the user's, so that masks do not depend on other layers."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = np.random.default_rng(0)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        return x * paddle.to_tensor(self.generator.binomial(1, 0.5, x.shape).astype(np.float32))


def make(layer: Layer) -> nn.Layer:
    i, o = layer.inputs, layer.outputs
    return {
        "linear": lambda: nn.Linear(i, o),
        "conv": lambda: nn.Conv2D(i, o, 3, padding=1),
        "relu": nn.ReLU,
        "gelu": nn.GELU,
        "tanh": nn.Tanh,
        "layer_norm": lambda: nn.LayerNorm(i),
        "pool": lambda: nn.MaxPool2D(2),
        "flatten": nn.Flatten,
        "dropout": lambda: nn.Dropout(0.25),
        "batch_norm": lambda: (nn.BatchNorm2D if layer.is_image else nn.BatchNorm1D)(i),
        "spectral_norm": lambda: nn.utils.spectral_norm(nn.Linear(i, i)),
        "identity": nn.Identity,
        "numpy_dropout": NumpyDropout,
        "own_dropout": OwnDropout,
    }[layer.kind]()


def apply(case: Case, layers: list[nn.Layer], x: paddle.Tensor, checkpointed: bool):
    segment, outputs, nested = (
        nn.Sequential(*layers),
        case.options["outputs"],
        case.options["nested"],
    )
    options = {name: case.options[name] for name in ("use_reentrant", "preserve_rng_state")}

    def function(x: paddle.Tensor) -> tuple[paddle.Tensor, ...]:
        within = checkpointed and nested
        y = recompute(segment, x, use_reentrant=nested == "reentrant") if within else segment(x)
        return (y,) * outputs if outputs > 1 else y

    found = recompute(function, x, **options) if checkpointed else function(x)
    return found[0] + 2 * found[1] if outputs > 1 else found


def run(case: Case, checkpointed: bool) -> list[np.ndarray]:
    paddle.seed(case.seed)
    np.random.seed(case.seed % 2**31)
    layers = [make(layer) for layer in case.layers]
    leaf = paddle.to_tensor(case.input(), stop_gradient=False)
    x = leaf
    for begin, end in case.segments:
        x = apply(case, layers[begin:end], x, checkpointed)
    loss = x.square().sum()
    loss.backward()
    gradients = [leaf.grad] + [p.grad for layer in layers for p in layer.parameters()]
    return [np.zeros(0) if t is None else t.numpy() for t in (loss, *gradients)]


main(
    Peer(
        {"paddlepaddle": paddle.__version__},
        run,
        [*SAFE, "dropout", "batch_norm"],
        {
            "use_reentrant": [True, False],
            "preserve_rng_state": [True],
            "outputs": [1],
            "nested": ["", "reentrant"],
        },
        {
            "running-statistics-twice": Meeting(["batch_norm", "spectral_norm"]),
            "other-generators": Meeting(["own_dropout"]),
            "generators-not-preserved": Meeting(["numpy_dropout"], {"preserve_rng_state": [False]}),
            "returns-its-input": Meeting(["identity"]),
            "returns-one-tensor-twice": Meeting(options={"outputs": [2]}),
            "nested-in-non-reentrant": Meeting(
                options={"use_reentrant": [False], "nested": ["non_reentrant"]}
            ),
            "reentrant-in-non-reentrant": Meeting(
                options={"use_reentrant": [False], "nested": ["reentrant"]}
            ),
        },
    )
)
