# errors: Neither run fails, except that a determinism check on values may notice a recomputation without random state.
# at: checkpointed run
# expected: no error
# got: BrokenPromise: A layer of mixed precision has gradients of float32. Not so (mixed_precision) with keras.remat: CheckpointError: torch.utils.checkpoint: Recomputed values for the following tensors have different metadata than during the forward pass.
# tensor at position 0:
# saved metadata: {'shape': torch.Size([2, 1]), 'dtype': torch.bfloat16, 'device': device(type='cpu')}
# recomputed metadata: {'shape': torch.Size([2, 1]), 'dtype': torch.float32, 'device': device(type='cpu')}
# tensor at position 1:
# saved metadata: {'shape': torch.Size([1, 2]), 'dtype': torch.bfloat16, 'device': device(type='cpu')}
# recomputed metadata: {'shape': torch.Size([1, 2]), 'dtype': torch.float32, 'device': device(type='cpu')}
# .
#
# Tip: To see a more detailed error message, either pass `debug=True` to
# `torch.utils.checkpoint.checkpoint(...)` or wrap the code block
# with `with torch.utils.checkpoint.set_checkpoint_debug_enabled(True):` to
# enable checkpoint‑debug mode globally.
#
# If this error occurs under torch.compile with automatic_dynamic_shapes enabled,
# it may be because the recomputation selected a different compiled graph than the
# forward pass (e.g., a dynamic graph instead of the original static graph).
# To fix this, either:
#   - Use torch._dynamo.mark_dynamic() to explicitly mark varying dimensions as
#     dynamic upfront, avoiding the static-to-dynamic transition.
#   - Call torch._C._dynamo.eval_frame._set_lru_cache(False) to disable LRU cache
#     reordering, which can change which graph is checked first between forward
#     and recompute.
# See https://github.com/pytorch/pytorch/issues/166926 for more details and
# workaround examples.
# , plain [1.0, 1.0]
# keras 3.15.1 on torch; run: python this_file.py
import os

os.environ["KERAS_BACKEND"] = "torch"
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
