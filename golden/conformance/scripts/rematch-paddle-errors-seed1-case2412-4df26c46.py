# errors: Neither run fails, except that a determinism check on values may notice a recomputation without random state.
# at: checkpointed run
# expected: no error
# got: BrokenPromise: What a function computes in between is not kept until the backward. Not so (drops) with reentrant: [2, 2], plain [1, 1]
# paddle 3.3.1; run: python this_file.py
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


def drops(checkpoint):
    """What a function computes in between is not kept until the backward."""
    x = paddle.ones([2**20])
    x.stop_gradient = False

    def allocated(function):
        before = paddle.base.core.host_memory_stat_current_value("Allocated", 0)
        made = checkpoint(function)(x)
        after = paddle.base.core.host_memory_stat_current_value("Allocated", 0)
        made.sum().backward()
        return round((after - before) / 2**22)

    return ([1, 1], [allocated(lambda x: x * x * x * x), allocated(lambda x: x.exp().tanh().exp())])


def outcome(wrap):
    try:
        found = drops(wrap)
        return found if isinstance(found, tuple) else np.array(found)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


plain, checkpointed = outcome(lambda function, **options: function), outcome(reentrant)
plain, checkpointed = checkpointed if isinstance(checkpointed, tuple) else (plain, checkpointed)
print("plain        ", plain)
print("checkpointed ", checkpointed)
print("same" if np.array_equal(plain, checkpointed) else "DIFFERENT")
