"""PaddlePaddle: `fleet.utils.recompute()`, in both of its variants."""

from __future__ import annotations

import argparse
import random
import re
import warnings
import zlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import paddle
import paddle.nn as nn  # noqa: F401
import paddle.nn.functional as F  # noqa: F401
from paddle.distributed.fleet.meta_parallel import get_rng_state_tracker
from paddle.distributed.fleet.utils import recompute  # noqa: F401
from paddle.distributed.fleet.utils.log_util import logger

from rematch.adapters.forked import forked
from rematch.adapters.paddle_promises import PROMISES, non_reentrant, reentrant
from rematch.adapters.source import modules_of
from rematch.adapters.tape import Tape
from rematch.case import Case, Choice, Layer, Segment, Sequential
from rematch.protocol import Request, Unsupported
from rematch.record import Record


def seed_all(seed: int) -> None:
    paddle.seed(seed)
    np.random.seed(seed)
    random.seed(seed)


def seed_streams(streams: int) -> None:
    """Those of the tracker that parallel layers draw from, which the default one is no part of."""
    tracker, known = get_rng_state_tracker(), vars(seed_streams)
    for stream in range(1, streams):
        if str(stream) not in known:
            tracker.add(str(stream), stream)
            known |= tracker.states_
        tracker.states_[str(stream)] = known[str(stream)]
        with tracker.rng_state(str(stream)):
            paddle.seed(stream)


def stream_state(stream: int) -> int:
    """The second word is an address."""
    if stream == 0:
        state = paddle.get_rng_state()
    else:
        with get_rng_state_tracker().rng_state(str(stream)):
            state = paddle.get_rng_state()
    return zlib.crc32(str(state[0]).split(maxsplit=4)[4].encode())


def from_stream(stream: int, draw: Callable[[], Any]) -> Any:
    with get_rng_state_tracker().rng_state(str(stream)):
        return draw()


def clear(tensors: Sequence[Any], prior: bool) -> None:
    for t in tensors:
        for part in t if isinstance(t, list) else [t]:
            part.grad = paddle.ones_like(part) if prior else None


def differentiate(objective: Any, arguments: Any, trained: Any, backwards: int = 1) -> Any:
    for i, a in enumerate(arguments):
        for t in a if isinstance(a, list) else [a]:
            t.stop_gradient = i not in trained
    loss, outputs = objective(*arguments)
    for left in range(backwards - 1, -1, -1):
        if not loss.stop_gradient:
            loss.backward(retain_graph=left > 0)
    found = [arguments[i] for i in trained]
    gradients = [[t.grad for t in a] if isinstance(a, list) else a.grad for a in found]
    return loss, outputs, gradients


def parameters_of(m: Any) -> list[Any]:
    return [p for p in m.parameters() if p.trainable]


def state_of(m: Any) -> list[Any]:
    buffers = [b for b in m.buffers() if b._is_initialized()]
    return [*buffers, *(p for p in m.parameters() if not p.trainable)]


def set_mode(m: Any, train: bool) -> None:
    m.train() if train else m.eval()


def twice(x: Any, y: Any) -> tuple[Any, Any]:
    """Where both are one, what comes back to them is added up here in every run, and not here or
    at the border of a segment."""
    return (x, y) if x is not y else (x.clone(),) * 2


def add(x: Any, y: Any) -> Any:
    x, y = twice(x, y)
    return x + y


def concat(x: Any, y: Any) -> Any:
    return paddle.concat(twice(x, y), 1)


class Jitter(nn.Layer):
    """With a random generator that neither Paddle nor NumPy knows of."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = np.random.default_rng(0)

    def forward(self, x: Any) -> Any:
        return x * float(self.generator.random()) if self.training else x


def _linear(layer: Layer, train: bool) -> str:
    return "paddle.matmul({x}, {weight}, transpose_y=True)" + (" + {bias}" if layer.bias else "")


def _conv2d(layer: Layer, train: bool) -> str:
    bias = "{bias}" if layer.bias else "None"
    return f"F.conv2d({{x}}, {{weight}}, {bias}, {{stride}}, {{padding}})"


def _drawing(expression: str) -> Callable[[Layer, bool], str]:
    def write(layer: Layer, train: bool) -> str:
        if not train or layer.p == 0:
            return "{x}"
        if layer.stream:
            return f"from_stream({layer.stream}, lambda: {expression})"
        return expression

    return write


KINDS = {
    "linear": _linear,
    "conv2d": _conv2d,
    "relu": lambda layer, train: "F.relu_({x})" if layer.in_place else "F.relu({x})",
    "max_pool2d": "F.max_pool2d({x}, {kernel}, {stride}, {padding})",
    "avg_pool2d": "F.avg_pool2d({x}, {kernel}, {stride}, {padding}, exclusive=False)",
    "layer_norm": "F.layer_norm({x}, {weight}.shape, {weight}, {bias})",
    "group_norm": "F.group_norm({x}, {groups}, 1e-5, {weight}, {bias})",
    "gelu": "F.gelu({x})",
    "silu": "F.silu({x})",
    "tanh": "paddle.tanh({x})",
    "sigmoid": "F.sigmoid({x})",
    "softmax": "F.softmax({x}, -1)",
    "dropout": _drawing("F.dropout({x}, {p})"),
    "gaussian_noise": _drawing("{x} + {p} * paddle.randn({x}.shape, {x}.dtype)"),
    "flatten": "({x} if {x}.ndim == 2 else {x}.flatten(1))",
    "add": "add({x}, {y})",
    "concat": "concat({x}, {y})",
    "split": "paddle.split({x}, [{features}, -1], 1)",
    "duplicate": "({x}, {x})",
}

MODULES = modules_of(
    """
    batch_norm_rows | N C -> N C | parameters, state | nn.BatchNorm1D(C)
    batch_norm | N C H W -> N C H W | parameters, state | nn.BatchNorm2D(C)
    instance_norm | N C H W -> N C H W | parameters | nn.InstanceNorm2D(C)
    spectral_norm | N C -> N C | state | nn.SpectralNorm([C, C], power_iters=1)
        | paddle.matmul(x, m(paddle.eye(x.shape[-1])))
    dropout_axis | N C -> N C | draws | nn.Dropout(0.5, axis=1)
    dropout_downscale | N C -> N C | draws | nn.Dropout(0.5, mode='downscale_in_infer')
    dropout2d | N C H W -> N C H W | draws | nn.Dropout2D(0.5)
    alpha_dropout | N C -> N C | draws | nn.AlphaDropout(0.5)
    feature_alpha_dropout | N C H W -> N C H W | draws | nn.FeatureAlphaDropout(0.5)
    rrelu | N C -> N C | draws | nn.RReLU()
    gumbel_softmax | N C -> N C | draws | nn.Identity() | F.gumbel_softmax(m(x))
    maxout | N 2C -> N C |  | nn.Identity() | F.maxout(m(x)[:, :, None, None], 2).flatten(1)
    lstm | N C -> N C | parameters | nn.LSTM(C, C) | m(x[:, None])[0][:, 0]
    gru | N C -> N C | parameters | nn.GRU(C, C) | m(x[None])[0][0]
    rnn_dropout | N C -> N C | parameters, draws | nn.SimpleRNN(C, C, 2, dropout=0.5)
        | m(x[None])[0][0]
    attention | N 2C -> N 2C | parameters, draws | nn.MultiHeadAttention(2 * C, 2, dropout=0.5)
        | m(x[None])[0]
    transformer_layer | N 2C -> N 2C | parameters, draws | nn.TransformerEncoderLayer(2 * C, 2, 8, 0.25)
        | m(x[None])[0]
    transformer_in_place | N C -> N C | parameters, draws | nn.Linear(C, C)
        | F.dropout(F.relu_(m(x)), 0.5, training=m.training)
    fused_dropout_add | N C -> N C | draws | inn.FusedDropoutAdd(0.5) | m(x, x * 0.5)
    numpy_noise | N C -> N C | draws elsewhere | nn.Identity()
        | m(x) * paddle.to_tensor(np.random.rand(*x.shape), x.dtype)
    numpy_generator | N C -> N C | draws elsewhere | Jitter()
    layer_drop | N C -> N C | parameters, draws elsewhere | nn.Linear(C, C)
        | (x + m(x) * float(random.random() < 0.5) if m.training else x + m(x))
    """
)


RARELY = 8
"""Of so many cases that may end in a segmentation fault, one is run."""


class Paddle(Tape):
    versions = {"paddlepaddle": paddle.__version__, "numpy": np.__version__}
    imports = (
        "import random\nimport zlib\nimport paddle\nimport paddle.nn as nn\n"
        "import paddle.incubate.nn as inn\nimport paddle.nn.functional as F\n"
        "from paddle.distributed.fleet.meta_parallel import get_rng_state_tracker\n"
        "from paddle.distributed.fleet.utils import recompute\n"
        "from paddle.incubate.distributed.fleet import recompute_sequential"
    )
    helpers = (
        seed_all,
        seed_streams,
        stream_state,
        from_stream,
        clear,
        differentiate,
        parameters_of,
        state_of,
        set_mode,
        twice,
        add,
        concat,
        Jitter,
    )
    kinds = KINDS
    modules = MODULES
    losses = {
        "mse": "F.mse_loss(y.reshape(target.shape), target)",
        "cross_entropy": "F.cross_entropy(y.flatten(1), target)",
    }
    features = Tape.features | {"in_place", "in_place_at_segment_end", "named_stream", "float64"}
    script_array = "paddle.to_tensor({array})"
    script_random_state = "stream_state(0)"

    def __init__(self, variant: str = "") -> None:
        other = {"reentrant": "non_reentrant", "non_reentrant": "reentrant"}.get(variant)
        self.name = f"paddle {paddle.__version__}" + (f" ({variant})" if variant else "")
        if other:
            self.features = self.features - {other, "mixed_variants"}
            self.promises, self.checkpoint_function = PROMISES, variant
            self.promise_helpers = (reentrant if variant == "reentrant" else non_reentrant,)
        paddle.set_device("cpu")
        # Every segment that needs no gradient is warned of.
        logger.setLevel("ERROR")
        warnings.simplefilter("ignore")
        paddle.disable_signal_handler()
        super().__init__()

    def run(self, request: Request, record: Record) -> None:
        # Paddle restores all streams that there are, which takes time for those of earlier cases.
        get_rng_state_tracker().reset()
        paddle.set_default_dtype(request.case.dtype)
        if not _may_kill(request.case):
            return super().run(request, record)
        if request.case.seed % RARELY:
            raise Unsupported("a segmentation fault takes long; few of these cases are run")
        run = super().run
        return forked(run, request, record) if request.checkpointed else run(request, record)

    def checkpoint_call(self, function: str, arguments: Sequence[str], choice: Choice) -> str:
        options = [f"use_reentrant={choice.reentrant}"]
        if not choice.preserve_rng:
            options.append("preserve_rng_state=False")
        return f"recompute({', '.join([function, *arguments, *options])})"

    def sequential_call(self, plan: Sequential, functions: Sequence[str], seed: int) -> str:
        # It fails from two segments on, so it is called in few of the cases.
        if seed % RARELY or not plan.last_stored:
            return ""
        options = {"segments": plan.segments, "preserve_rng_state": plan.choice.preserve_rng}
        return (
            f"recompute_sequential({options}, [{', '.join(functions)}], x, "
            f"use_reentrant={plan.choice.reentrant})"
        )

    def seed(self, seed: int) -> str:
        return f"seed_all({seed})"

    def setup(self, request: Request) -> Sequence[str]:
        streams = 1 + max(layer.stream for layer in request.case.layers)
        more = [f"seed_streams({streams})"] if streams > 1 else []
        return [*super().setup(request), *more]

    def array(self, a: np.ndarray) -> Any:
        return paddle.to_tensor(a)

    def numpy(self, a: Any) -> np.ndarray:
        return a if isinstance(a, np.ndarray) else a.numpy()

    def leaf(self, a: np.ndarray, trained: bool) -> Any:
        return paddle.to_tensor(a, stop_gradient=not trained)

    def set_trained(self, t: Any, trained: bool) -> None:
        t.stop_gradient = not trained

    def requires_grad(self, a: Any) -> bool:
        return not a.stop_gradient

    def hook(self, t: Any, called: Callable[[Any], None]) -> None:
        t.register_hook(called)

    def gradient(self, t: Any) -> Any:
        return t.grad

    def set_gradient(self, t: Any, a: np.ndarray | None) -> None:
        t.grad = None if a is None else paddle.to_tensor(a)

    def write(self, t: Any, a: np.ndarray) -> None:
        t.set_value(a)

    def spoil(self, t: Any) -> None:
        with paddle.no_grad():
            t.scale_(-1.5)

    def memory(self, t: Any) -> int:
        return t.data_ptr()

    def size(self, t: Any) -> int:
        return t.size * t.element_size()

    def saving(self, called: Callable[[Any], None]) -> AbstractContextManager[Any]:
        def pack(t: Any) -> tuple[Any, int]:
            called(t)
            return t, t.inplace_version

        def unpack(packed: tuple[Any, int]) -> Any:
            # Behind a hook, Paddle does not look.
            if packed[0].inplace_version != packed[1]:
                raise RuntimeError("a saved tensor has been modified by an inplace operation")
            return packed[0]

        return paddle.autograd.saved_tensors_hooks(pack, unpack)

    def message(self, error: Exception) -> str:
        """Of the many lines of an error, the one that says something."""
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        inner = [line for line in lines if re.match(r"\w*(Error|Exception): ", line)]
        inner = [line for line in inner if not line.endswith("(External)")]
        return re.sub(r"0x[0-9a-f]+|_\d+", "", [*inner, *lines, ""][0])

    def handed_on(self, segment: Segment) -> str:
        # The reentrant variant refuses it as it is; behind a copy, other things come to light.
        return "{x}.clone()" if segment.choice.reentrant and segment.begin % 2 == 0 else "{x}"

    def propagate(self, loss: Any, retain: bool) -> None:
        loss.backward(retain_graph=retain)

    def stream_state(self, stream: int) -> bytes:
        return stream_state(stream).to_bytes(4, "little")

    def put_back(self) -> str:
        if paddle.is_grad_enabled():
            return ""
        paddle.set_grad_enabled(True)
        return "grad mode"


def _may_kill(case: Case) -> bool:
    """A second backward through a reentrant segment is a segmentation fault."""
    return case.protocol.backwards > 1 and any(choice.reentrant for choice in case.choices())


def subject(arguments: list[str]) -> Paddle:
    parser = argparse.ArgumentParser(prog="python -m rematch paddle")
    parser.add_argument("--variant", choices=("reentrant", "non_reentrant"), default="")
    return Paddle(parser.parse_args(arguments).variant)
