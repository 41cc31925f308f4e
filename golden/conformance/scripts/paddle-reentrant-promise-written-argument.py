# errors: Neither run fails, except that a determinism check on values may notice a recomputation without random state.
# at: checkpointed run
# expected: no error
# got: BrokenPromise: What a function writes to its argument it does not write twice. Not so (written_argument) with reentrant: OSError: ValueError: (InvalidArgument) Leaf Var (eager_in_tmp) that doesn't stop gradient can't use inplace strategy., plain [16.0, 4.0]
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


def written_argument(checkpoint):
    """What a function writes to its argument it does not write twice."""
    x = paddle.to_tensor([2.0], stop_gradient=False)

    def double(x):
        x.scale_(2.0)
        return x * x

    y = x * 1
    checkpoint(double)(y).backward()
    return [x.grad.item(), y.item()]


def outcome(wrap):
    try:
        found = written_argument(wrap)
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
