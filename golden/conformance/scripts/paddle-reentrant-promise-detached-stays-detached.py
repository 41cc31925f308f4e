# errors: Neither run fails, except that a determinism check on values may notice a recomputation without random state.
# at: checkpointed run
# expected: no error
# got: BrokenPromise: A result that needs no gradient, a mask or detached, needs none outside. Not so (detached_stays_detached) with reentrant: [False, False, False], plain [False, True, True]
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


def detached_stays_detached(checkpoint):
    """A result that needs no gradient, a mask or detached, needs none outside."""
    x = paddle.to_tensor([2.0], stop_gradient=False)
    square, detached, sign = checkpoint(lambda x: (x * x, x.detach() * 1, x > 0))(x)
    return [square.stop_gradient, detached.stop_gradient, sign.stop_gradient]


def outcome(wrap):
    try:
        found = detached_stays_detached(wrap)
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
