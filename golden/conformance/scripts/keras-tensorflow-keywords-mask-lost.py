# errors: Neither run fails, except that a determinism check on values may notice a recomputation without random state.
# at: checkpointed run
# expected: no error
# got: BrokenPromise: A layer within a layer sees the mask of its input in the recomputation, too. Not so (mask_of_a_sequence) with keras.remat: [0.3455, 0.4393, 0.0], plain [0.4919, 0.6255, 0.0]
# keras 3.15.1 on tensorflow; run: python this_file.py
import os

os.environ["KERAS_BACKEND"] = "tensorflow"
import keras

seeds = keras.random.SeedGenerator(0)
import numpy as np


def gradients(objective, *values):
    """Their numbers, one after another; None where there is none."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        with tf.GradientTape() as tape:
            tape.watch(values)
            loss = objective(*values)
        found = tape.gradient(loss, values)
    elif keras.backend.backend() == "jax":
        import jax

        found = jax.grad(objective, tuple(range(len(values))))(*values)
    else:
        for value in values:
            value.requires_grad_(True)
            value.grad = None
        objective(*values).backward()
        found = [value.grad for value in values]
    flat = [[g] if g is None else keras.ops.convert_to_numpy(g).ravel().tolist() for g in found]
    return sum(flat, [])


def counted(runs, x, what = 1):
    """Notes a run; JAX traces a function once, and runs what it found."""
    if keras.backend.backend() == "jax":
        import jax

        jax.debug.callback(lambda x: runs.append(what), x)
    else:
        runs.append(what)


def mask_of_a_sequence(checkpoint):
    """A layer within a layer sees the mask of its input in the recomputation, too."""

    class Block(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.inner = keras.layers.SimpleRNN(1, "tanh", True, "ones", "ones")

        def call(self, x):
            return self.inner(x)

    with keras.RematScope(mode=None if checkpoint(len) is len else "full"):
        layer = Block()
    masking = keras.layers.Masking()
    x = keras.ops.convert_to_tensor(np.array([[[0.5], [0.25], [0.0]]], "float32"))
    return np.round(gradients(lambda x: keras.ops.sum(layer(masking(x))), x), 4)


def outcome(wrap):
    try:
        found = mask_of_a_sequence(wrap)
        return found if isinstance(found, tuple) else np.array(found)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


plain, checkpointed = outcome(lambda function, **options: function), outcome(keras.remat)
plain, checkpointed = checkpointed if isinstance(checkpointed, tuple) else (plain, checkpointed)
print("plain        ", plain)
print("checkpointed ", checkpointed)
same = np.array_equal(plain, checkpointed)
print("same" if same else "DIFFERENT")
raise SystemExit(0 if same else 1)
