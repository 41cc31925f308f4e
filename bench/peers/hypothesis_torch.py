"""PyTorch's checkpoint() under Hypothesis: hypothesis_torch.py --help"""

import contextlib
from functools import partial

import numpy as np
import torch
from gradients import SAFE, Case, Layer, Meeting, Peer, main
from torch import nn
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

torch.set_num_threads(1)


class Last(nn.Module):
    """Output among what a recurrent module returns."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x)[0]


class Lookup(nn.Embedding):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + super().forward(x.argmax(-1))


class NativeDropout(nn.Module):
    """One operator, so that a policy can keep its mask."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.native_dropout(x, 0.25, True)[0]


class GaussianDropout(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * (1 + 0.5 * torch.randn_like(x))


class OwnDropout(nn.Module):
    """Dropout with a generator of the user's, so that masks do not depend on other layers."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = torch.Generator().manual_seed(0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.empty_like(x).bernoulli_(0.5, generator=self.generator) * 2


def make(layer: Layer) -> nn.Module:
    i, o = layer.inputs, layer.outputs
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
        "batch_norm": lambda: (nn.BatchNorm2d if layer.is_image else nn.BatchNorm1d)(i),
        "lstm": lambda: Last(nn.LSTM(i, i)),
        "transformer": lambda: nn.TransformerEncoderLayer(i, 2, 8, dropout=0),
        "rrelu": nn.RReLU,
        "spectral_norm": lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(i, i)),
        "embedding": lambda: Lookup(i, i, max_norm=1),
        "own_dropout": OwnDropout,
        "native_dropout": NativeDropout,
        "gaussian_dropout": GaussianDropout,
    }[layer.kind]()


KEPT = {"products": torch.ops.aten.addmm.default, "masks": torch.ops.aten.native_dropout.default}


def run(case: Case, checkpointed: bool) -> list[np.ndarray]:
    torch.manual_seed(case.seed)
    layers = [make(layer) for layer in case.layers]
    leaf = torch.from_numpy(case.input()).requires_grad_()
    options = {"use_reentrant": case.options["use_reentrant"]}
    if (kept := case.options["keep"]) and not options["use_reentrant"]:
        options["context_fn"] = partial(create_selective_checkpoint_contexts, [KEPT[kept]])
    autocast = torch.autocast("cpu") if case.options["autocast"] else contextlib.nullcontext()
    x = leaf
    with autocast:
        for begin, end in case.segments:
            segment = nn.Sequential(*layers[begin:end])
            x = checkpoint(segment, x, **options) if checkpointed else segment(x)
    loss = x.float().square().sum()
    loss.backward()
    gradients = [leaf.grad] + [p.grad for layer in layers for p in layer.parameters()]
    return [np.asarray(t.detach()) for t in (loss, *gradients)]


main(
    Peer(
        {"torch": torch.__version__},
        run,
        [*SAFE, "dropout", "batch_norm", "lstm"],
        {"use_reentrant": [False, True], "keep": ["", *KEPT], "autocast": [False, True]},
        {
            "running-statistics-twice": Meeting(["batch_norm"]),
            "state-read-after-it-advanced": Meeting(["spectral_norm"]),
            "weight-rescaled-twice": Meeting(["embedding"]),
            "kernels-by-grad-mode": Meeting(["lstm", "transformer"], {"use_reentrant": [True]}),
            "rrelu-unfilled": Meeting(["rrelu"]),
            "kept-draw-before-draw": Meeting(
                ["native_dropout", "gaussian_dropout"], {"keep": ["masks"]}
            ),
            "other-generators": Meeting(["own_dropout"]),
        },
    )
)
