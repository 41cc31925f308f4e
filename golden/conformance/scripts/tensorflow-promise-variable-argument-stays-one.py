# errors: Neither run fails, except that a determinism check on values may notice a recomputation without random state.
# at: checkpointed run
# expected: no error
# got: BrokenPromise: A variable that is an argument may be assigned to. Not so (variable_argument_stays_one) with tf.recompute_grad: AttributeError: 'tensorflow.python.framework.ops.EagerTensor' object has no attribute 'assign_add', plain 4.0
# tensorflow 2.21.0; run: python this_file.py
import tensorflow as tf
import numpy as np


def gradient(objective, x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = objective(x)
    return tape.gradient(y, x)


def variable_argument_stays_one(checkpoint):
    """A variable that is an argument may be assigned to."""
    v, x = tf.Variable(3.0), tf.constant(2.0)

    def counted(x, v):
        v.assign_add(1.0)
        return x * x

    return gradient(lambda x: checkpoint(counted)(x, v), x)


def outcome(wrap):
    try:
        found = variable_argument_stays_one(wrap)
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
