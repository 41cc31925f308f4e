# errors: Neither run fails, except that a determinism check on values may notice a recomputation without random state.
# at: checkpointed run
# expected: no error
# got: BrokenPromise: A checkpointed function may take integers, the tokens of an embedding for example. Not so (integer_argument) with mx.checkpoint: ValueError: [gather] Cannot calculate VJP with respect to indices. Use stop_gradient on indices to stop gradients from being computed., plain [[1.0, 1.0], [0.0, 0.0], [2.0, 2.0]]
# mlx 0.32.4; run: python this_file.py
import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten, tree_unflatten
import numpy as np


def integer_argument(checkpoint):
    """A checkpointed function may take integers, the tokens of an embedding for example."""
    tokens = mx.array([2, 0, 2])
    look_up = checkpoint(lambda table, tokens: table[tokens])
    return mx.grad(lambda table: look_up(table, tokens).sum())(mx.ones((3, 2)))


def outcome(wrap):
    try:
        found = integer_argument(wrap)
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
