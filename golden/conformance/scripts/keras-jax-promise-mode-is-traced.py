# errors: Neither run fails, except that a determinism check on values may notice a recomputation without random state.
# at: checkpointed run
# expected: no error
# got: BrokenPromise: A layer in a layer of a scope runs in the mode of the call, also in the recomputation. Not so (training_of_the_call) with keras.remat: AttributeError: Exception encountered when calling Outer.call().
#
# [1m'str' object has no attribute '_error_repr'[0m
#
# Arguments received by Outer.call():
#   • x=jnp.ndarray(shape=(1, 1), dtype=float32), plain [2.0, 2.0]
# keras 3.15.1 on jax; run: python this_file.py
import os

# Otherwise XLA rounds an operation by what else is compiled with it.
os.environ["XLA_FLAGS"] = (
    "--xla_backend_optimization_level=0 --xla_disable_hlo_passes=fusion,algsimp,constant_folding "
    # Compiles twice as fast.
    "--xla_cpu_use_fusion_emitters=false"
)
os.environ["KERAS_BACKEND"] = "jax"
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


def training_of_the_call(checkpoint):
    """A layer in a layer of a scope runs in the mode of the call, also in the recomputation."""
    seen = []

    class Inner(keras.layers.Layer):
        def call(self, x, training=None):
            seen.append(bool(training))
            return x * x if training else x

    class Outer(keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.inner = Inner()

        def call(self, x):
            return self.inner(x)

    with keras.RematScope(mode=None if checkpoint(len) is len else "full"):
        layer = Outer()
    found = gradients(lambda x: keras.ops.sum(layer(x, training=True)), keras.ops.ones((1, 1)))
    return [len(set(seen)), *found]


def outcome(wrap):
    try:
        found = training_of_the_call(wrap)
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
