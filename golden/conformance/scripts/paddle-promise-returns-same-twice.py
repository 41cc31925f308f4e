# errors: Neither run fails, except that a determinism check on values may notice a recomputation without random state.
# at: checkpointed run
# expected: no error
# got: BrokenPromise: A function may return one tensor twice; both gradients count. Not so (returns_same_twice) with reentrant: OSError: AssertionError: The argument 'tensors' of paddle.autograd.backward contains duplicate paddle.Tensor object., plain [28.0]
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


def returns_same_twice(checkpoint):
    """A function may return one tensor twice; both gradients count."""
    x = paddle.to_tensor([2.0], stop_gradient=False)

    def twice(x):
        y = x * x
        return y, y

    a, b = checkpoint(twice)(x)
    (2 * a + 5 * b).backward()
    return x.grad


def outcome(wrap):
    try:
        found = returns_same_twice(wrap)
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
