# errors: Neither run fails, except that a determinism check on values may notice a recomputation without random state.
# at: checkpointed run
# expected: no error
# got: BrokenPromise: A gradient by the input is differentiated by a variable. Not so (gradient_penalty) with tf.recompute_grad: NotImplementedError: recompute_grad tried to transpose grad of <lambda>. Consider not using recompute_grad in forward modeautodiff, plain 24.0
# tensorflow 2.21.0; run: python this_file.py
import tensorflow as tf
import numpy as np


def gradient(objective, x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = objective(x)
    return tape.gradient(y, x)


def gradient_penalty(checkpoint):
    """A gradient by the input is differentiated by a variable."""
    x, v = tf.constant(2.0), tf.Variable(3.0)
    with tf.GradientTape() as outer:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = checkpoint(lambda x: x * x * v * v)(x)
        slope = tape.gradient(y, x)
    return outer.gradient(slope, v)


def outcome(wrap):
    try:
        found = gradient_penalty(wrap)
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
