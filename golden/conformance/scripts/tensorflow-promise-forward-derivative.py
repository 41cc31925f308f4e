# errors: Neither run fails, except that a determinism check on values may notice a recomputation without random state.
# at: checkpointed run
# expected: no error
# got: BrokenPromise: A tf.autodiff.ForwardAccumulator goes through a function. Not so (forward_derivative) with tf.recompute_grad: NotImplementedError: recompute_grad tried to transpose grad of <lambda>. Consider not using recompute_grad in forward modeautodiff, plain 12.0
# tensorflow 2.21.0; run: python this_file.py
import tensorflow as tf
import numpy as np


def gradient(objective, x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = objective(x)
    return tape.gradient(y, x)


def forward_derivative(checkpoint):
    """A tf.autodiff.ForwardAccumulator goes through a function."""
    x = tf.constant(2.0)
    with tf.autodiff.ForwardAccumulator(x, tf.constant(1.0)) as accumulator:
        y = checkpoint(lambda x: x * x * x)(x)
    return accumulator.jvp(y)


def outcome(wrap):
    try:
        found = forward_derivative(wrap)
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
