# errors: Neither run fails, except that a determinism check on values may notice a recomputation without random state.
# at: checkpointed run
# expected: no error
# got: BrokenPromise: A keyword may be an option also in a tf.function. Not so (keyword_option_in_function) with tf.recompute_grad: ValueError: ValueError: The custom_gradient decorator currently supports keywords arguments only when eager execution is enabled., plain 4.0
# tensorflow 2.21.0; run: python this_file.py
import tensorflow as tf
import numpy as np


def gradient(objective, x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = objective(x)
    return tape.gradient(y, x)


def keyword_option_in_function(checkpoint):
    """A keyword may be an option also in a tf.function."""

    @tf.function
    def step(x):
        return gradient(
            lambda x: checkpoint(lambda x, training: x * x if training else x)(x, training=True), x
        )

    return step(tf.constant(2.0))


def outcome(wrap):
    try:
        found = keyword_option_in_function(wrap)
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
