# errors: Neither run fails, except that a determinism check on values may notice a recomputation without random state.
# at: checkpointed run
# expected: no error
# got: BrokenPromise: A parameter that takes keywords alone gets its gradient. Not so (keyword_only) with reentrant: ValueError: Currently, keyword-only arguments are not supported when you want to send kwargs(dict parameter) to function with use_reentrant=True., plain [9.0, 12.0]
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


def keyword_only(checkpoint):
    """A parameter that takes keywords alone gets its gradient."""
    x, w = paddle.to_tensor([[2.0], [3.0]], stop_gradient=False)

    def scaled(x, *, w):
        return x * w * w

    return [g.item() for g in paddle.grad(checkpoint(scaled)(x, w=w), [x, w])]


def outcome(wrap):
    try:
        found = keyword_only(wrap)
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
