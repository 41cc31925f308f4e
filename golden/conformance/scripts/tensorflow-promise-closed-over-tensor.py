# errors: Neither run fails, except that a determinism check on values may notice a recomputation without random state.
# at: checkpointed run
# expected: no error
# got: BrokenPromise: A tensor that a function closes over gets its gradient. Not so (closed_over_tensor) with tf.recompute_grad: 4.0, plain 12.0
# tensorflow 2.21.0; run: python this_file.py
import tensorflow as tf
import numpy as np


def gradient(objective, x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = objective(x)
    return tape.gradient(y, x)


def closed_over_tensor(checkpoint):
    """A tensor that a function closes over gets its gradient."""
    x = tf.constant(2.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        square = x * x
        y = checkpoint(lambda x: x * square)(x)
    return tape.gradient(y, x)


def outcome(wrap):
    try:
        found = closed_over_tensor(wrap)
        return found if isinstance(found, tuple) else np.array(found)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


plain, checkpointed = outcome(lambda function, **options: function), outcome(tf.recompute_grad)
plain, checkpointed = checkpointed if isinstance(checkpointed, tuple) else (plain, checkpointed)
print("plain        ", plain)
print("checkpointed ", checkpointed)
same = np.array_equal(plain, checkpointed)
print("same" if same else "DIFFERENT")
raise SystemExit(0 if same else 1)
