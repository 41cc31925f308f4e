# errors: Neither run fails, except that a determinism check on values may notice a recomputation without random state.
# at: checkpointed run
# expected: no error
# got: BrokenPromise: A variable that is an argument, and closed over as well, gets both gradients. Not so (variable_given_and_closed_over) with tf.recompute_grad: [2.0, 3.0], plain [4.0, 6.0]
# tensorflow 2.21.0; run: python this_file.py
import tensorflow as tf
import numpy as np


def gradient(objective, x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = objective(x)
    return tape.gradient(y, x)


def variable_given_and_closed_over(checkpoint):
    """A variable that is an argument, and closed over as well, gets both gradients."""
    v = tf.Variable([2.0, 3.0])
    with tf.GradientTape() as tape:
        y = checkpoint(lambda w: w * v)(v)
    return tape.gradient(y, v)


def outcome(wrap):
    try:
        found = variable_given_and_closed_over(wrap)
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
