# errors: Neither run fails, except that a determinism check on values may notice a recomputation without random state.
# at: checkpointed run
# expected: no error
# got: BrokenPromise: The gradient of a gradient by a variable is right. Not so (second_derivative_by_variable) with tf.recompute_grad: NotImplementedError: recompute_grad tried to transpose grad of <lambda>. Consider not using recompute_grad in forward modeautodiff, plain 12.0
# tensorflow 2.21.0; run: python this_file.py
import tensorflow as tf
import numpy as np


def gradient(objective, x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = objective(x)
    return tape.gradient(y, x)


def second_derivative_by_variable(checkpoint):
    """The gradient of a gradient by a variable is right."""
    v = tf.Variable(2.0)
    with tf.GradientTape() as outer:
        with tf.GradientTape() as tape:
            y = checkpoint(lambda x: x * v * v * v)(tf.constant(1.0))
        slope = tape.gradient(y, v)
    return outer.gradient(slope, v)


def outcome(wrap):
    try:
        found = second_derivative_by_variable(wrap)
        return found if isinstance(found, tuple) else np.array(found)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


plain, checkpointed = outcome(lambda function, **options: function), outcome(tf.recompute_grad)
plain, checkpointed = checkpointed if isinstance(checkpointed, tuple) else (plain, checkpointed)
print("plain        ", plain)
print("checkpointed ", checkpointed)
print("same" if np.array_equal(plain, checkpointed) else "DIFFERENT")
