# errors: Neither run fails, except that a determinism check on values may notice a recomputation without random state.
# at: checkpointed run
# expected: no error
# got: BrokenPromise: A tensor that is written to before the backward is refused. Not so (changed_before_the_backward) with reentrant: [False], plain [True]
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


def changed_before_the_backward(checkpoint):
    """A tensor that is written to before the backward is refused."""
    x = paddle.to_tensor([2.0], stop_gradient=False)
    y = x * 1
    made = checkpoint(lambda y: y * y * y)(y)
    with paddle.no_grad():
        y.scale_(10.0)
    try:
        made.backward()
    except RuntimeError:
        return [True]
    return [False]


def outcome(wrap):
    try:
        found = changed_before_the_backward(wrap)
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
