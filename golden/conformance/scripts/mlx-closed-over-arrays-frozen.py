# errors: Neither run fails, except that a determinism check on values may notice a recomputation without random state.
# at: checkpointed run
# expected: no error
# got: BrokenPromise: What a checkpointed function closes over gets its gradient. Not so (closed_over) with mx.checkpoint: 0.0, plain 1.5728955268859863
# mlx 0.32.4; run: python this_file.py
import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten, tree_unflatten
import numpy as np


def closed_over(checkpoint):
    """What a checkpointed function closes over gets its gradient."""

    def loss(weight):
        return checkpoint(lambda x: mx.tanh(x * weight))(mx.ones(2)).sum()

    return mx.grad(loss)(mx.array(0.5))


def outcome(wrap):
    try:
        found = closed_over(wrap)
        return found if isinstance(found, tuple) else np.array(found)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


plain, checkpointed = outcome(lambda function, **options: function), outcome(mx.checkpoint)
plain, checkpointed = checkpointed if isinstance(checkpointed, tuple) else (plain, checkpointed)
print("plain        ", plain)
print("checkpointed ", checkpointed)
same = np.array_equal(plain, checkpointed)
print("same" if same else "DIFFERENT")
raise SystemExit(0 if same else 1)
