# errors: Neither run fails, except that a determinism check on values may notice a recomputation without random state.
# at: checkpointed run
# expected: no error
# got: BrokenPromise: A function may be mapped over rows in a tf.function. Not so (mapped_in_function) with tf.recompute_grad: ValueError: ValueError: Tensor Tensor("gradient_tape/map/while/gradients/map/while/IdentityN_grad/mul_1/ReadVariableOp/resource:0", shape=(), dtype=resource) which captures tf.Tensor(<ResourceHandle(name="Variable/352", device="/job:localhost/replica:0/task:0/device:CPU:0", container="Anonymous", type="tensorflow::Var", dtype and shapes : "[ DType enum: 1, Shape: [] ]")>, shape=(), dtype=resource) is in list of internal_captures but not in internal_capture_to_output., plain 5.0
# tensorflow 2.21.0; run: python this_file.py
import tensorflow as tf
import numpy as np


def gradient(objective, x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = objective(x)
    return tape.gradient(y, x)


def mapped_in_function(checkpoint):
    """A function may be mapped over rows in a tf.function."""
    v = tf.Variable(3.0)

    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            y = tf.map_fn(checkpoint(lambda row: row * row * v), x)
        return tape.gradient(y, v)

    return step(tf.constant([[1.0], [2.0]]))


def outcome(wrap):
    try:
        found = mapped_in_function(wrap)
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
