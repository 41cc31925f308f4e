# errors: Neither run fails, except that a determinism check on values may notice a recomputation without random state.
# at: checkpointed run
# expected: no error
# got: BrokenPromise: A tensor that is given by keyword gets its gradient. Not so (keyword_tensor) with tf.recompute_grad: [9.0, None], plain [9.0, 12.0]
# tensorflow 2.21.0; run: python this_file.py
import tensorflow as tf
import numpy as np


def gradient(objective, x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = objective(x)
    return tape.gradient(y, x)


def keyword_tensor(checkpoint):
    """A tensor that is given by keyword gets its gradient."""
    x, w = tf.constant(2.0), tf.constant(3.0)
    with tf.GradientTape() as tape:
        tape.watch([x, w])
        y = checkpoint(lambda x, w: x * w * w)(x, w=w)
    return [None if g is None else float(g) for g in tape.gradient(y, [x, w])]


def outcome(wrap):
    try:
        found = keyword_tensor(wrap)
        return found if isinstance(found, tuple) else np.array(found)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


plain, checkpointed = outcome(lambda function, **options: function), outcome(tf.recompute_grad)
plain, checkpointed = checkpointed if isinstance(checkpointed, tuple) else (plain, checkpointed)
print("plain        ", plain)
print("checkpointed ", checkpointed)
print("same" if np.array_equal(plain, checkpointed) else "DIFFERENT")
