# errors: Neither run fails, except that a determinism check on values may notice a recomputation without random state.
# at: checkpointed run
# expected: no error
# got: BrokenPromise: recompute_sequential() in two segments computes what the layers do. Not so (sequential) with reentrant: TypeError: recompute_sequential.<locals>._run_func.<locals>.do_run() takes 1 positional argument but 2 were given, plain [[7.25], [7.25]]
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


def sequential(checkpoint):
    """recompute_sequential() in two segments computes what the layers do."""
    x = paddle.to_tensor([[2.0], [3.0]], stop_gradient=False)
    layers = [lambda x: x * x, lambda x: x - x.mean(), lambda x: x * x, lambda x: x + 1]
    if checkpoint(len) is len:
        for layer in layers:
            x = layer(x)
        return x
    return recompute_sequential({"segments": 2}, layers, x)


def outcome(wrap):
    try:
        found = sequential(wrap)
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
