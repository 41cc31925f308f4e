# errors: Neither run fails, except that a determinism check on values may notice a recomputation without random state.
# at: checkpointed run
# expected: no error
# got: BrokenPromise: An error in a recomputation leaves the grad mode and the random state as they were. Not so (error_in_recomputation) with non_reentrant: [0.0, 0.6505592465400696], plain [1.0, 0.6505592465400696]
# paddle 3.3.1 (non_reentrant); run: python this_file.py
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


def non_reentrant(function):
    return lambda *given, **named: recompute(function, *given, use_reentrant=False, **named)


def error_in_recomputation(checkpoint):
    """An error in a recomputation leaves the grad mode and the random state as they were."""
    x, runs = paddle.to_tensor([2.0], stop_gradient=False), []

    def fails(x):
        runs.append(1)
        if len(runs) == 2:
            raise ValueError("no memory, say")
        return x * x * paddle.rand([1])

    paddle.seed(3)
    y = checkpoint(fails)(x)
    try:
        y.backward()
    except Exception:
        runs.append(1)
    enabled, drawn = paddle.is_grad_enabled(), paddle.rand([1]).item()
    paddle.set_grad_enabled(True)
    return [enabled, drawn]


def outcome(wrap):
    try:
        found = error_in_recomputation(wrap)
        return found if isinstance(found, tuple) else np.array(found)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


plain, checkpointed = outcome(lambda function, **options: function), outcome(non_reentrant)
plain, checkpointed = checkpointed if isinstance(checkpointed, tuple) else (plain, checkpointed)
print("plain        ", plain)
print("checkpointed ", checkpointed)
same = np.array_equal(plain, checkpointed)
print("same" if same else "DIFFERENT")
raise SystemExit(0 if same else 1)
