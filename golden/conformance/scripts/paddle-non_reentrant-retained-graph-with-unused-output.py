# errors: Neither run fails, except that a determinism check on values may notice a recomputation without random state.
# at: checkpointed run
# expected: no error
# got: BrokenPromise: An output may be unused where a graph is retained. Not so (unused_output_and_retained_graph) with non_reentrant: OSError: (External) Exception: Not supported to retrieve a tensor saved by autograd multiple times that is no need to recompute., plain 14.778112411499023
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


def unused_output_and_retained_graph(checkpoint):
    """An output may be unused where a graph is retained."""
    a = paddle.to_tensor([2.0], stop_gradient=False)
    y, _ = checkpoint(lambda a: (a.exp(), a.tanh()))(a)
    y.backward(retain_graph=True)
    y.backward()
    return a.grad.item()


def outcome(wrap):
    try:
        found = unused_output_and_retained_graph(wrap)
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
