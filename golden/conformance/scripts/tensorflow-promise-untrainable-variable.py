# errors: Neither run fails, except that a determinism check on values may notice a recomputation without random state.
# at: checkpointed run
# expected: no error
# got: BrokenPromise: A variable that is watched by hand gets its gradient, trainable or not. Not so (untrainable_variable) with tf.recompute_grad: None, plain 12.0
# tensorflow 2.21.0; run: python this_file.py
import tensorflow as tf
import numpy as np


def gradient(objective, x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = objective(x)
    return tape.gradient(y, x)


def untrainable_variable(checkpoint):
    """A variable that is watched by hand gets its gradient, trainable or not."""
    v = tf.Variable(3.0, trainable=False)
    with tf.GradientTape() as tape:
        tape.watch(v)
        y = checkpoint(lambda x: x * v * v)(tf.constant(2.0))
    return tape.gradient(y, v)


def outcome(wrap):
    try:
        found = untrainable_variable(wrap)
        return found if isinstance(found, tuple) else np.array(found)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


plain, checkpointed = outcome(lambda function, **options: function), outcome(tf.recompute_grad)
plain, checkpointed = checkpointed if isinstance(checkpointed, tuple) else (plain, checkpointed)
print("plain        ", plain)
print("checkpointed ", checkpointed)
print("same" if np.array_equal(plain, checkpointed) else "DIFFERENT")
