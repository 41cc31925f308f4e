# errors: Neither run fails, except that a determinism check on values may notice a recomputation without random state.
# at: checkpointed run
# expected: no error
# got: BrokenPromise: A frozen input is no reason not to train what the function closes over. Not so (closed_over_alone) with reentrant: None, plain [4.0]
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


def closed_over_alone(checkpoint):
    """A frozen input is no reason not to train what the function closes over."""
    w = paddle.to_tensor([2.0], stop_gradient=False)
    checkpoint(lambda x: x * w * w)(paddle.ones([1])).backward()
    return w.grad


def outcome(wrap):
    try:
        found = closed_over_alone(wrap)
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
