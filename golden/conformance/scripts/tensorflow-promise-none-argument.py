# errors: Neither run fails, except that a determinism check on values may notice a recomputation without random state.
# at: checkpointed run
# expected: no error
# got: BrokenPromise: An argument may be None, as a mask that there is not. Not so (none_argument) with tf.recompute_grad: ValueError: Attempt to convert a value (None) with an unsupported type (<class 'NoneType'>) to a Tensor., plain 4.0
# tensorflow 2.21.0; run: python this_file.py
import tensorflow as tf
import numpy as np


def gradient(objective, x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = objective(x)
    return tape.gradient(y, x)


def none_argument(checkpoint):
    """An argument may be None, as a mask that there is not."""
    return gradient(
        lambda x: checkpoint(lambda x, mask: x * x if mask is None else x)(x, None),
        tf.constant(2.0),
    )


def outcome(wrap):
    try:
        found = none_argument(wrap)
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
