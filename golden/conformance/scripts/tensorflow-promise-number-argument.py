# errors: Neither run fails, except that a determinism check on values may notice a recomputation without random state.
# at: checkpointed run
# expected: no error
# got: BrokenPromise: An argument may be a number of Python. Not so (number_argument) with tf.recompute_grad: InvalidArgumentError: cannot compute Pow as input #1(zero-based) was expected to be a float tensor but is a int32 tensor [Op:Pow] name:, plain 12.0
# tensorflow 2.21.0; run: python this_file.py
import tensorflow as tf
import numpy as np


def gradient(objective, x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = objective(x)
    return tape.gradient(y, x)


def number_argument(checkpoint):
    """An argument may be a number of Python."""
    return gradient(lambda x: checkpoint(lambda x, n: x**n)(x, 3), tf.constant(2.0))


def outcome(wrap):
    try:
        found = number_argument(wrap)
        return found if isinstance(found, tuple) else np.array(found)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


plain, checkpointed = outcome(lambda function, **options: function), outcome(tf.recompute_grad)
plain, checkpointed = checkpointed if isinstance(checkpointed, tuple) else (plain, checkpointed)
print("plain        ", plain)
print("checkpointed ", checkpointed)
print("same" if np.array_equal(plain, checkpointed) else "DIFFERENT")
