# errors: Neither run fails, except that a determinism check on values may notice a recomputation without random state.
# at: checkpointed run
# expected: no error
# got: BrokenPromise: A function may stop the tape around it for a part. Not so (stopped_inside) with tf.recompute_grad: ValueError: Tape is not recording., plain 4.0
# tensorflow 2.21.0; run: python this_file.py
import tensorflow as tf
import numpy as np


def gradient(objective, x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = objective(x)
    return tape.gradient(y, x)


def stopped_inside(checkpoint):
    """A function may stop the tape around it for a part."""
    x = tf.constant(2.0)
    with tf.GradientTape() as tape:
        tape.watch(x)

        def half(x):
            with tape.stop_recording():
                constant = x * x
            return constant * x

        y = checkpoint(half)(x)
    return tape.gradient(y, x)


def outcome(wrap):
    try:
        found = stopped_inside(wrap)
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
