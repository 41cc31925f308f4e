# errors: Neither run fails, except that a determinism check on values may notice a recomputation without random state.
# at: checkpointed run
# expected: no error
# got: BrokenPromise: A checkpointed function may call another. Not so (nested) with non_reentrant: ValueError: (InvalidArgument) paddle.autograd.saved_tensors_hooks only one pair of hooks is allowed at a time., plain [32.0]
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


def nested(checkpoint):
    """A checkpointed function may call another."""
    x = paddle.to_tensor([2.0], stop_gradient=False)
    inner = checkpoint(lambda x: x * x * x)
    checkpoint(lambda x: inner(x) * x)(x).backward()
    return x.grad


def outcome(wrap):
    try:
        found = nested(wrap)
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
