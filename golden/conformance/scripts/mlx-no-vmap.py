# errors: Neither run fails, except that a determinism check on values may notice a recomputation without random state.
# at: checkpointed run
# expected: no error
# got: BrokenPromise: Gradients of checkpointed functions can be vectorized by mx.vmap(). Not so (vectorized) with mx.checkpoint: ValueError: [Primitive::vmap] Not implemented for Depends., plain [[0.4199743866920471, 0.07065081596374512], [0.009866036474704742, 0.0013409508392214775]]
# mlx 0.32.4; run: python this_file.py
import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten, tree_unflatten
import numpy as np


def vectorized(checkpoint):
    """Gradients of checkpointed functions can be vectorized by mx.vmap()."""
    rows = mx.array([[1.0, 2.0], [3.0, 4.0]])
    return mx.vmap(mx.grad(checkpoint(lambda x: mx.tanh(x).sum())))(rows)


def outcome(wrap):
    try:
        found = vectorized(wrap)
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
