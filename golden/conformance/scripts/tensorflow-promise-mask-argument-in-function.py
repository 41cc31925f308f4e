# errors: Neither run fails, except that a determinism check on values may notice a recomputation without random state.
# at: checkpointed run
# expected: no error
# got: BrokenPromise: An argument may be a mask of booleans, also in a tf.function. Not so (mask_argument_in_function) with tf.recompute_grad: TypeError: Value passed to parameter 'x' has DataType bool not in list of allowed values: bfloat16, float16, float32, float64, uint8, uint16, uint32, uint64, int8, int16, int32, int64, complex64, complex128, plain [4.0, 1.0]
# tensorflow 2.21.0; run: python this_file.py
import tensorflow as tf
import numpy as np


def gradient(objective, x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = objective(x)
    return tape.gradient(y, x)


def mask_argument_in_function(checkpoint):
    """An argument may be a mask of booleans, also in a tf.function."""

    @tf.function(autograph=False)
    def step(x, mask):
        return gradient(lambda x: checkpoint(lambda x, mask: tf.where(mask, x * x, x))(x, mask), x)

    return step(tf.constant([2.0, 3.0]), tf.constant([True, False]))


def outcome(wrap):
    try:
        found = mask_argument_in_function(wrap)
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
