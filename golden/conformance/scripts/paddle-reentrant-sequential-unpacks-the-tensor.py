# errors: Neither run fails, except that a determinism check on values may notice a recomputation without random state.
# at: checkpointed run
# expected: no error
# got: BrokenPromise: The gradient of a gradient is right. Not so (second_derivative) with reentrant: AttributeError: 'NoneType' object has no attribute 'item', plain [12.0, 12.0]
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


def second_derivative(checkpoint):
    """The gradient of a gradient is right."""
    x = paddle.to_tensor([2.0], stop_gradient=False)
    y = checkpoint(lambda x: x * x * x)(x)
    (first,) = paddle.grad(y, x, create_graph=True)
    first.backward()
    return [first.item(), x.grad.item()]


def outcome(wrap):
    try:
        found = second_derivative(wrap)
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
