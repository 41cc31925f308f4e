# errors: Neither run fails, except that a determinism check on values may notice a recomputation without random state.
# at: checkpointed run
# expected: no error
# got: BrokenPromise: A function may return one array twice; both gradients count. Not so (returns_same_twice) with mx.checkpoint: [2.0, 2.0], plain [7.0, 7.0]
# mlx 0.32.4; run: python this_file.py
import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten, tree_unflatten
import numpy as np


def returns_same_twice(checkpoint):
    """A function may return one array twice; both gradients count."""

    def loss(x):
        a, b = checkpoint(lambda x: (x, x))(x)
        return (2 * a + 5 * b).sum()

    return mx.grad(loss)(mx.ones(2))


def outcome(wrap):
    try:
        found = returns_same_twice(wrap)
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
