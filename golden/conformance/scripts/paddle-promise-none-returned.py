# errors: Neither run fails, except that a determinism check on values may notice a recomputation without random state.
# at: checkpointed run
# expected: no error
# got: BrokenPromise: A function may return None beside a tensor, as attention without weights does. Not so (none_returned) with reentrant: OSError: AssertionError: <EMPTY MESSAGE>, plain [4.0, 1.0]
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


def none_returned(checkpoint):
    """A function may return None beside a tensor, as attention without weights does."""
    x = paddle.to_tensor([2.0], stop_gradient=False)
    y, none = checkpoint(lambda x: (x * x, None))(x)
    y.backward()
    return [x.grad.item(), none is None]


def outcome(wrap):
    try:
        found = none_returned(wrap)
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
