# errors: Neither run fails, except that a determinism check on values may notice a recomputation without random state.
# at: checkpointed run
# expected: no error
# got: BrokenPromise: A hook on a tensor within a function runs once, and its result counts. Not so (hook_inside) with reentrant: RuntimeError: Cannot register hook on a tensor that stop gradient., plain [120.0, 3.0]
# paddle 3.3.1 (reentrant); run: python this_file.py
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


def reentrant(function):
    return lambda *given, **named: recompute(function, *given, use_reentrant=True, **named)


def hook_inside(checkpoint):
    """A hook on a tensor within a function runs once, and its result counts."""
    x, runs = paddle.to_tensor([2.0], stop_gradient=False), []

    def hooked(x):
        y = x * x
        y.register_hook(lambda g: runs.append(g.item()) or g * 10)
        return y * 3

    checkpoint(hooked)(x).backward()
    return [x.grad.item(), *runs]


def outcome(wrap):
    try:
        found = hook_inside(wrap)
        return found if isinstance(found, tuple) else np.array(found)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


plain, checkpointed = outcome(lambda function, **options: function), outcome(reentrant)
plain, checkpointed = checkpointed if isinstance(checkpointed, tuple) else (plain, checkpointed)
print("plain        ", plain)
print("checkpointed ", checkpointed)
same = np.array_equal(plain, checkpointed)
print("same" if same else "DIFFERENT")
raise SystemExit(0 if same else 1)
