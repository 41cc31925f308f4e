"""A user's test of PyTorch's checkpoint() with Hypothesis: hypothesis_torch.py [--cases N]

Random small models, half perceptrons and half convolutional networks, as `rematch check --mix
standard` draws them, run plain and checkpointed. Only losses and gradients are compared. Prints how
many cases ran in how many seconds, and how many differ, as JSON.
"""

import argparse
import contextlib
import json
import time
import warnings
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

torch.set_num_threads(1)

OF_ROWS = ("linear", "relu", "gelu", "tanh", "layer_norm", "dropout", "batch_norm", "lstm")
OF_IMAGES = ("conv", "relu", "pool", "batch_norm", "dropout")
PRODUCTS = partial(create_selective_checkpoint_contexts, [torch.ops.aten.addmm.default])


class Last(nn.Module):
    """A recurrent module that returns its output alone."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x)[0]


@dataclass
class Layer:
    kind: str
    inputs: int
    outputs: int
    is_image: bool = False

    def make(self) -> nn.Module:
        i, o = self.inputs, self.outputs
        return {
            "linear": lambda: nn.Linear(i, o),
            "conv": lambda: nn.Conv2d(i, o, 3, padding=1),
            "relu": nn.ReLU,
            "gelu": nn.GELU,
            "tanh": nn.Tanh,
            "layer_norm": lambda: nn.LayerNorm(i),
            "pool": lambda: nn.MaxPool2d(2),
            "flatten": nn.Flatten,
            "dropout": lambda: nn.Dropout(0.25),
            "batch_norm": lambda: (nn.BatchNorm2d if self.is_image else nn.BatchNorm1d)(i),
            "lstm": lambda: Last(nn.LSTM(i, i)),
        }[self.kind]()


@dataclass
class Case:
    seed: int
    layers: list[Layer]
    shape: tuple[int, ...]
    segments: list[tuple[int, int]]
    reentrant: bool
    keeps_products: bool
    autocast: bool

    def run(self, checkpointed: bool) -> list[np.ndarray]:
        """The loss and all gradients."""
        torch.manual_seed(self.seed)
        layers = [layer.make() for layer in self.layers]
        numbers = np.random.default_rng(self.seed).standard_normal(self.shape)
        leaf = torch.from_numpy(numbers.astype(np.float32)).requires_grad_()
        options: dict[str, Any] = {"use_reentrant": self.reentrant}
        if self.keeps_products and not self.reentrant:
            options["context_fn"] = PRODUCTS
        x = leaf
        with torch.autocast("cpu") if self.autocast else contextlib.nullcontext():
            for begin, end in self.segments:
                segment = nn.Sequential(*layers[begin:end])
                x = checkpoint(segment, x, **options) if checkpointed else segment(x)
        loss = x.float().square().sum()
        loss.backward()
        gradients = [leaf.grad] + [p.grad for layer in layers for p in layer.parameters()]
        return [np.asarray(t.detach()) for t in (loss, *gradients)]

    def differs(self) -> bool:
        """An error of the checkpointed run counts; one of the plain run is raised."""
        plain = self.run(False)
        try:
            again = self.run(True)
        except Exception:
            return True
        return not all(
            np.array_equal(a, b, equal_nan=True) for a, b in zip(plain, again, strict=True)
        )


def perceptron(draw: Any) -> tuple[list[Layer], tuple[int, ...]]:
    rows, first = draw(st.integers(2, 8)), draw(st.integers(1, 16))
    width, layers = first, []
    for _ in range(draw(st.integers(1, 10))):
        kind = draw(st.sampled_from(OF_ROWS))
        out = draw(st.integers(1, 16)) if kind == "linear" else width
        layers.append(Layer(kind, 2 * width, 2 * out))
        width = out
    return layers, (rows, 2 * first)


def convolutional(draw: Any) -> tuple[list[Layer], tuple[int, ...]]:
    first, side = draw(st.integers(1, 4)), draw(st.sampled_from([4, 8]))
    shape = draw(st.integers(2, 8)), first, side, side
    channels, layers = first, []
    for _ in range(draw(st.integers(1, 5))):
        kind = draw(st.sampled_from(OF_IMAGES))
        if kind == "pool":
            if side < 4:
                continue
            side //= 2
        out = draw(st.integers(1, 8)) if kind == "conv" else channels
        layers.append(Layer(kind, channels, out, is_image=True))
        channels = out
    layers += [Layer("flatten", channels, channels * side * side, is_image=True)]
    return [*layers, Layer("linear", channels * side * side, 4)], shape


@st.composite
def cases(draw: Any) -> Case:
    number = draw(st.integers(0, 2**31 - 1))
    layers, shape = (perceptron if draw(st.booleans()) else convolutional)(draw)
    options = [draw(st.booleans()) for _ in range(3)]
    count = draw(st.integers(1, len(layers)))
    cuts = [len(layers) * i // count for i in range(count + 1)]
    return Case(number, layers, shape, list(zip(cuts, cuts[1:])), *options)


def hunt(count: int) -> dict[str, Any]:
    done = failed = 0

    @seed(1)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(cases())
    def test(case: Case) -> None:
        nonlocal done, failed
        failed += case.differs()
        done += 1

    begin = time.perf_counter()
    test()
    seconds = time.perf_counter() - begin
    found = {"cases": done, "failed": failed, "seconds": seconds}
    return found | {"cases_per_second": round(done / seconds, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=300)
    words = parser.parse_args()
    warnings.filterwarnings("ignore")
    # Libraries that are loaded at their first use are no part of the test.
    hunt(20)
    print(json.dumps({"versions": {"torch": torch.__version__}, **hunt(words.cases)}))


main()
