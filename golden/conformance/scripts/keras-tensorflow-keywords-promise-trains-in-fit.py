# errors: Neither run fails, except that a determinism check on values may notice a recomputation without random state.
# at: checkpointed run
# expected: no error
# got: BrokenPromise: A model of a scope trains in fit(). Not so (trains_in_fit) with keras.remat: ValueError: Exception encountered when calling Sequential.call().
#
# [1mThe custom_gradient decorator currently supports keywords arguments only when eager execution is enabled.[0m
#
# Arguments received by Sequential.call():
#   • inputs=tf.Tensor(shape=(None, 2), dtype=float32)
#   • training=True
#   • mask=None
#   • kwargs=<class 'inspect._empty'>, plain [[0.0674000009894371], [-0.5170199871063232]]
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


def trains_in_fit(checkpoint):
    """A model of a scope trains in fit()."""
    keras.utils.set_random_seed(0)
    with keras.RematScope(mode=None if checkpoint(len) is len else "full"):
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1, "tanh")])
    model.compile("sgd", "mse")
    model.fit(np.ones((4, 2), "float32"), np.ones((4, 1), "float32"), verbose=0)
    return np.round(model.get_weights()[0], 5)


def outcome(wrap):
    try:
        found = trains_in_fit(wrap)
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
