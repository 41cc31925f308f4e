"""PaddlePaddle: `fleet.utils.recompute()`, in both of its variants."""

import argparse
import os
import pickle
import random
import re
import resource
import warnings
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import paddle
import paddle.nn as nn  # noqa: F401
import paddle.nn.functional as F  # noqa: F401
from paddle.base import core
from paddle.distributed.fleet.meta_parallel import get_rng_state_tracker
from paddle.distributed.fleet.utils import recompute  # noqa: F401
from paddle.distributed.fleet.utils.log_util import logger

from rematch.frameworks.paddle import paddle_layers as layers
from rematch.frameworks.paddle.promises import PROMISES, RETAINED, gradients, non_reentrant, reentrant
from rematch.subjects.case import Case, Choice, Segment, Sequential
from rematch.subjects.protocol import Request, Unsupported
from rematch.subjects.records import Record
from rematch.subjects.steps import Steps
from rematch.subjects.tape import Kept, Tape


def forked(run: Callable[[Request, Record], None], request: Request, record: Record) -> None:
    """`run(request, record)`; if it dies, the record says of which signal."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            run(request, record)
            with os.fdopen(write, "wb") as answer:
                pickle.dump(record, answer)
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as answer:
        data = answer.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        record.error("Killed", f"the process died of signal {os.WTERMSIG(status)}")
    else:
        vars(record).update(vars(pickle.loads(data)))


def seed_all(seed: int) -> None:
    paddle.seed(seed)
    np.random.seed(seed)
    random.seed(seed)


def seed_streams(streams: int) -> None:
    """Seeds the streams of the tracker that parallel layers draw from. The default stream is no part of it."""
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


def clear(tensors: Any, prior: bool) -> None:
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


FATAL = "fatal"
"""The option that says whether a case that may end in a segmentation fault is run."""
SEQUENTIAL = "sequential"
"""The option that says whether recompute_sequential() is called. It fails from two segments on, so
it is called in few of the cases."""
HANDED_ON = "handed_on"
"""The option that says whether a reentrant segment returns a copy of what it was given and hands on."""


class Paddle(Tape):
    versions = {"paddlepaddle": paddle.__version__, "numpy": np.__version__}
    imports = (
        "import math\nimport random\nimport zlib\nimport paddle\nimport paddle.nn as nn\n"
        "import paddle.incubate.nn as inn\nimport paddle.nn.functional as F\n"
        "from paddle.distributed.fleet.meta_parallel import get_rng_state_tracker\n"
        "from paddle.distributed.fleet.utils import recompute\n"
        "from paddle.incubate.distributed.fleet import recompute_sequential"
    )
    helpers = (
        seed_all,
        seed_streams,
        stream_state,
        layers.from_stream,
        clear,
        differentiate,
        parameters_of,
        state_of,
        set_mode,
        layers.twice,
        layers.add,
        layers.mul,
        layers.concat,
        layers.floats,
        layers.fit,
        layers.Jitter,
    )
    kinds = layers.KINDS
    modules = layers.MODULES
    library = layers.LIBRARY
    losses = {
        "mse": "F.mse_loss(y.reshape(target.shape), target)",
        "cross_entropy": "F.cross_entropy(y.flatten(1), target)",
    }
    features = Tape.features | {"in_place", "in_place_at_segment_end", "named_stream", "float64", "sequences"}
    script_array = "paddle.to_tensor({array})"
    script_random_state = "stream_state(0)"
    options = {
        FATAL: ["left out", "run"],
        SEQUENTIAL: ["segments", "recompute_sequential"],
        HANDED_ON: ["copied", "as it is"],
    }
    shares = {FATAL: 1 / 8, SEQUENTIAL: 1 / 8, HANDED_ON: 1 / 2}

    def __init__(self, variant: str = "") -> None:
        other = {"reentrant": "non_reentrant", "non_reentrant": "reentrant"}.get(variant)
        self.name = f"paddle {paddle.__version__}" + (f" ({variant})" if variant else "")
        by_layer = variant != "non_reentrant"
        self.promises = [p for p in PROMISES if not (by_layer and p in RETAINED)]
        self.promise_helpers = (reentrant if by_layer else non_reentrant, gradients)
        self.checkpoint_function = self.promise_helpers[0].__name__
        if other:
            self.features = self.features - {other, "mixed_variants"}
        paddle.set_device("cpu")
        # Every segment that needs no gradient is warned of.
        logger.setLevel("ERROR")
        warnings.simplefilter("ignore")
        paddle.disable_signal_handler()
        super().__init__()

    def run(self, request: Request, record: Record) -> None:
        # Paddle restores all streams that there are, which takes time for those of earlier cases.
        get_rng_state_tracker().reset()
        if not _may_kill(request.case):
            return super().run(request, record)
        if request.case.options.get(FATAL) != "run":
            raise Unsupported("a segmentation fault takes long; few of these cases are run")
        run = super().run
        return forked(run, request, record) if request.checkpointed else run(request, record)

    def steps(self, request: Request, record: Record) -> Steps:
        paddle.set_default_dtype(request.case.dtype)
        return super().steps(request, record)

    def checkpoint_call(
        self, function: str, arguments: Sequence[str], choice: Choice, chosen: Mapping[str, str]
    ) -> str:
        options = [f"use_reentrant={choice.reentrant}"]
        if not choice.preserve_rng:
            options.append("preserve_rng_state=False")
        return f"recompute({', '.join([function, *arguments, *options])})"

    def sequential_call(self, plan: Sequential, functions: Sequence[str], chosen: Mapping[str, str]) -> str:
        if SEQUENTIAL not in chosen or not plan.last_stored:
            return ""
        options = {"segments": plan.segments, "preserve_rng_state": plan.choice.preserve_rng}
        return f"recompute_sequential({options}, [{', '.join(functions)}], x, use_reentrant={plan.choice.reentrant})"

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
        return t.data_ptr() - t._offset() if t._is_initialized() else 0

    def size(self, t: Any) -> int:
        return t._holder_size() or 0

    def live(self) -> int:
        return core.host_memory_stat_current_value("Allocated", 0)

    def saving(self, called: Callable[[Any, Kept], None]) -> AbstractContextManager[Any]:
        def pack(t: Any) -> Kept:
            # A node that kept its own result would hold itself.
            kept = Kept(t.detach(), t.inplace_version, not t.stop_gradient)
            called(t, kept)
            return kept

        def unpack(kept: Kept) -> Any:
            # Behind a hook, Paddle does not look.
            if kept.value.inplace_version != kept.version:
                raise RuntimeError("a saved tensor has been modified by an inplace operation")
            # Paddle takes the memory away from what it is handed.
            back = kept.value.detach()
            back.stop_gradient = not kept.trained
            return back

        return paddle.autograd.saved_tensors_hooks(pack, unpack)

    def message(self, error: Exception) -> str:
        """Picks the line of an error that says something."""
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        inner = [line for line in lines if re.match(r"\w*(Error|Exception): ", line)]
        inner = [line for line in inner if not line.endswith("(External)")]
        return re.sub(r"0x[0-9a-f]+|_\d+", "", [*inner, *lines, ""][0])

    def handed_on(self, segment: Segment, chosen: Mapping[str, str]) -> str:
        # The reentrant variant refuses it as it is; behind a copy, other things come to light.
        return "{x}.clone()" if segment.choice.reentrant and HANDED_ON not in chosen else "{x}"

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
