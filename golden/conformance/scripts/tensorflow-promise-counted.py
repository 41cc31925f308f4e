# errors: Neither run fails, except that a determinism check on values may notice a recomputation without random state.
# at: checkpointed run
# expected: no error
# got: BrokenPromise: What a function assigns to a variable is assigned once. Not so (counted) with tf.recompute_grad: 2.0, plain 1.0
# tensorflow 2.21.0; run: python this_file.py
import tensorflow as tf
import numpy as np


def gradient(objective, x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = objective(x)
    return tape.gradient(y, x)


def counted(checkpoint):
    """What a function assigns to a variable is assigned once."""
    x, v = tf.constant(2.0), tf.Variable(0.0, trainable=False)

    def count(x):
        v.assign_add(1.0)
        return x * x

    with tf.GradientTape() as tape:
        tape.watch(x)
        y = checkpoint(count)(x)
    tape.gradient(y, x)
    return v.numpy()


def outcome(wrap):
    try:
        found = counted(wrap)
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
