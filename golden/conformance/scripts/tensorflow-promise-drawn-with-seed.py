# errors: Neither run fails, except that a determinism check on values may notice a recomputation without random state.
# at: checkpointed run
# expected: no error
# got: BrokenPromise: An op with a seed draws the same in the recomputation. Not so (drawn_with_seed) with tf.recompute_grad: [False], plain [True]
# tensorflow 2.21.0; run: python this_file.py
import tensorflow as tf
import numpy as np


def gradient(objective, x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = objective(x)
    return tape.gradient(y, x)


def drawn_with_seed(checkpoint):
    """An op with a seed draws the same in the recomputation."""
    tf.random.set_seed(3)
    x, seen = tf.constant(2.0), []

    def noisy(x):
        seen.append(float(tf.random.uniform([], seed=5)))
        return x * x * seen[-1]

    with tf.GradientTape() as tape:
        tape.watch(x)
        y = checkpoint(noisy)(x)
    tape.gradient(y, x)
    return [seen[0] == seen[-1]]


def outcome(wrap):
    try:
        found = drawn_with_seed(wrap)
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
