# errors: Neither run fails, except that a determinism check on values may notice a recomputation without random state.
# at: checkpointed run
# expected: no error
# got: BrokenPromise: A function may run in a branch of a tf.function. Not so (in_condition) with tf.recompute_grad: AttributeError: AttributeError: Tensor.graph is undefined when eager execution is enabled., plain 6.0
# tensorflow 2.21.0; run: python this_file.py
import tensorflow as tf
import numpy as np


def gradient(objective, x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = objective(x)
    return tape.gradient(y, x)


def in_condition(checkpoint):
    """A function may run in a branch of a tf.function."""
    v = tf.Variable(3.0)

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            y = tf.cond(x > 0, lambda: checkpoint(lambda x: x * v * v)(x), lambda: x)
        return tape.gradient(y, v)

    return step(tf.constant(1.0))


def outcome(wrap):
    try:
        found = in_condition(wrap)
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
