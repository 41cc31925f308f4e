# errors: Neither run fails, except that a determinism check on values may notice a recomputation without random state.
# at: checkpointed run
# expected: no error
# got: BrokenPromise: Variables of a tf.function that a function calls train, also in the second step. Not so (function_inside) with tf.recompute_grad: [12.0, None], plain [12.0, 12.0]
# tensorflow 2.21.0; run: python this_file.py
import tensorflow as tf
import numpy as np


def gradient(objective, x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = objective(x)
    return tape.gradient(y, x)


def function_inside(checkpoint):
    """Variables of a tf.function that a function calls train, also in the second step."""
    v = tf.Variable(3.0)
    traced, gradients = tf.function(lambda x: x * v * v), []
    for _ in range(2):
        with tf.GradientTape() as tape:
            y = checkpoint(lambda x: traced(x))(tf.constant(2.0))
        gradient = tape.gradient(y, v)
        gradients.append(None if gradient is None else float(gradient))
    return gradients


def outcome(wrap):
    try:
        found = function_inside(wrap)
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
