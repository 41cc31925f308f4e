# errors: Neither run fails, except that a determinism check on values may notice a recomputation without random state.
# at: checkpointed run
# expected: no error
# got: ValueError: (InvalidArgument) RecomputeFunction : Leaf Var (generated_tensor) that doesn't stop gradient can't use inplace strategy.
# paddle 3.3.1 (reentrant); run: python this_file.py
import sys

import random
import zlib
import paddle
import paddle.nn as nn
import paddle.incubate.nn as inn
import paddle.nn.functional as F
from paddle.distributed.fleet.meta_parallel import get_rng_state_tracker
from paddle.distributed.fleet.utils import recompute
from paddle.incubate.distributed.fleet import recompute_sequential
import numpy as np


def seed_all(seed):
    paddle.seed(seed)
    np.random.seed(seed)
    random.seed(seed)


def stream_state(stream):
    """The second word is an address."""
    if stream == 0:
        state = paddle.get_rng_state()
    else:
        with get_rng_state_tracker().rng_state(str(stream)):
            state = paddle.get_rng_state()
    return zlib.crc32(str(state[0]).split(maxsplit=4)[4].encode())


def clear(tensors, prior):
    for t in tensors:
        for part in t if isinstance(t, list) else [t]:
            part.grad = paddle.ones_like(part) if prior else None


def differentiate(objective, arguments, trained, backwards: int = 1):
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


x = paddle.to_tensor(np.array([[0.1]], np.float32))
target = paddle.to_tensor(np.array([[0.03035557270050049]], np.float32))


def plain(x):
    v0 = x
    return (v0,)


def checkpointed_segment_0_1(x):
    v0 = x
    return v0


def checkpointed(x):
    v0 = recompute(checkpointed_segment_0_1, x, use_reentrant=True)
    return (v0,)


def run(model):
    seed_all(0)
    clear([x], False)

    def objective(x, *_):
        outputs = model(x)
        y = outputs[0]
        return F.mse_loss(y.reshape(target.shape), target), outputs

    loss, outputs, gradients = differentiate(objective, [x], [0])
    results = {"loss": loss}
    results |= {f"output {i}": y for i, y in enumerate(outputs)}
    results["gradient of x"] = gradients[0]
    results["random state"] = stream_state(0)
    return {name: numbers(value) for name, value in results.items()}


def numbers(value):
    if isinstance(value, (list, tuple)):
        return np.concatenate([np.ravel(part) for part in value] or [[]])
    return np.array(value)


def outcome(model):
    try:
        return run(model)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


plain_results, results = outcome(plain), outcome(checkpointed)
different = []
for name in ["error"] if "error" in plain_results | results else plain_results:
    expected, got = plain_results.get(name), results.get(name)
    print(f"{name}\n  plain         {expected}\n  checkpointed  {got}")
    if not np.array_equal(expected, got):
        different.append(name)
print("DIFFERENT: " + ", ".join(different) if different else "same")
sys.exit(1 if different else 0)
