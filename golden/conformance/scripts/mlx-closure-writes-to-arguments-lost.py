# errors: Neither run fails, except that a determinism check on values may notice a recomputation without random state.
# at: checkpointed run
# expected: no error
# got: BrokenPromise: What a checkpointed function writes to its argument is written for the caller, too. Not so (written_argument) with mx.checkpoint: [2.393223762512207, 4.070651054382324], plain [0.8932238817214966, 4.070651054382324]
# mlx 0.32.4; run: python this_file.py
import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten, tree_unflatten
import numpy as np


def written_argument(checkpoint):
    """What a checkpointed function writes to its argument is written for the caller, too."""

    def halve_first(x):
        x[0] = x[0] / 2
        return mx.tanh(x)

    halve = checkpoint(halve_first)

    def loss(x):
        y = x * 1
        return halve(y).sum() + (y * y).sum()

    return mx.grad(loss)(mx.array([1.0, 2.0]))


def outcome(wrap):
    try:
        found = written_argument(wrap)
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
