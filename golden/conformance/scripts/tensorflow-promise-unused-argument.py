# errors: Neither run fails, except that a determinism check on values may notice a recomputation without random state.
# at: checkpointed run
# expected: no error
# got: BrokenPromise: An argument that nothing uses has no gradient. Not so (unused_argument) with tf.recompute_grad: [False], plain [True]
# tensorflow 2.21.0; run: python this_file.py
import tensorflow as tf
import numpy as np


def gradient(objective, x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = objective(x)
    return tape.gradient(y, x)


def unused_argument(checkpoint):
    """An argument that nothing uses has no gradient."""
    x, w = tf.constant(2.0), tf.constant(3.0)
    with tf.GradientTape() as tape:
        tape.watch([x, w])
        y = checkpoint(lambda x, w: x * x)(x, w)
    return [tape.gradient(y, w) is None]


def outcome(wrap):
    try:
        found = unused_argument(wrap)
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
