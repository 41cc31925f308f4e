# errors: Neither run fails, except that a determinism check on values may notice a recomputation without random state.
# at: checkpointed run
# expected: no error
# got: BrokenPromise: A scope of activations takes any layer that has one. Not so (activations_of_lstm) with keras.remat: AttributeError: Exception encountered when calling LSTM.call().
#
# [1mproperty 'activation' of 'LSTM' object has no setter[0m
#
# Arguments received by LSTM.call():
#   • sequences=tf.Tensor(shape=(1, 3, 2), dtype=float32)
#   • initial_state=None
#   • mask=None
#   • training=False, plain [-0.0549, 0.0019, -0.0601, 0.0003, -0.1333, -0.0039]
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


def activations_of_lstm(checkpoint):
    """A scope of activations takes any layer that has one."""
    keras.utils.set_random_seed(0)
    with keras.RematScope(mode=None if checkpoint(len) is len else "activations"):
        layer = keras.layers.LSTM(2)
    found = gradients(lambda x: keras.ops.sum(layer(x)), keras.ops.ones((1, 3, 2)))
    return np.round(found, 4)


def outcome(wrap):
    try:
        found = activations_of_lstm(wrap)
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
