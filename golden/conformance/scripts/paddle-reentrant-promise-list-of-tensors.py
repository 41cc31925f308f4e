# errors: Neither run fails, except that a determinism check on values may notice a recomputation without random state.
# at: checkpointed run
# expected: no error
# got: BrokenPromise: Tensors in a list get their gradients. Not so (list_of_tensors) with reentrant: ValueError: (InvalidArgument) GradNodePyLayer_RecomputeFunction's backward function should not return empty at 0 position., plain [12.0]
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


def list_of_tensors(checkpoint):
    """Tensors in a list get their gradients."""
    x = paddle.to_tensor([2.0], stop_gradient=False)
    checkpoint(lambda pair: pair[0] * pair[1])([x * 1, x * x]).backward()
    return x.grad


def outcome(wrap):
    try:
        found = list_of_tensors(wrap)
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
