# errors: Neither run fails, except that a determinism check on values may notice a recomputation without random state.
# at: checkpointed run
# expected: no error
# got: BrokenPromise: A layer that was made before the scope is recomputed when it is called in it. Not so (called_in_a_scope) with keras.remat: 1, plain 2
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


def called_in_a_scope(checkpoint):
    """A layer that was made before the scope is recomputed when it is called in it."""
    runs = []

    class Counted(keras.layers.Layer):
        def call(self, x):
            counted(runs, x)
            return x * x

    def called(x):
        with keras.RematScope(mode="full"):
            return keras.ops.sum(layer(x))

    layer = Counted()
    gradients(called, keras.ops.ones((1, 1)))
    return (2, len(runs))


def outcome(wrap):
    try:
        found = called_in_a_scope(wrap)
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
