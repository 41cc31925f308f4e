# errors: Neither run fails, except that a determinism check on values may notice a recomputation without random state.
# at: checkpointed run
# expected: no error
# got: BrokenPromise: A layer of mixed precision has gradients of float32. Not so (mixed_precision) with keras.remat: InvalidArgumentError: cannot compute _MklMatMul as input #1(zero-based) was expected to be a bfloat16 tensor but is a float tensor [Op:MatMul] name: , plain [1.0, 1.0]
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


def mixed_precision(checkpoint):
    """A layer of mixed precision has gradients of float32."""
    with keras.RematScope(mode=None if checkpoint(len) is len else "full"):
        layer = keras.layers.Dense(1, kernel_initializer="ones", dtype="mixed_bfloat16")
    x = keras.ops.ones((1, 2))
    layer(x)
    return gradients(lambda x: keras.ops.sum(keras.ops.cast(layer(x), "float32")), x)


def outcome(wrap):
    try:
        found = mixed_precision(wrap)
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
