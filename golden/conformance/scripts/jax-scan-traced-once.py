# errors: Neither run fails, except that a determinism check on values may notice a recomputation without random state.
# at: checkpointed run
# expected: no error
# got: BrokenPromise: What a function leaves in a list can be used behind it. Not so (appended) with jax.checkpoint: UnexpectedTracerError: Encountered an unexpected tracer. A function transformed by JAX had a side effect, allowing for a reference to an intermediate value with type float64[] wrapped in a DynamicJaxprTracer to escape the scope of the transformation.
# JAX transformations require that functions explicitly return their outputs, and disallow saving intermediate values to global state.
# The function being traced when the value leaked was block at rematch/adapters/promises/jax.py:187 traced for checkpoint / remat.
# ------------------------------
# The leaked intermediate value was created on line rematch/adapters/promises/jax.py:188:20 (appended.<locals>.block).
# ------------------------------
# When the value was created, the final 5 stack frames (most recent last) excluding JAX-internal frames were:
# ------------------------------
# rematch/adapters/promises/jax.py:188:20 (appended.<locals>.block)
# ------------------------------
#
# To catch the leak earlier, try setting the environment variable JAX_CHECK_TRACER_LEAKS or using the `jax.checking_leaks` context manager.
# See https://docs.jax.dev/en/latest/errors.html#jax.errors.UnexpectedTracerError, plain 8.0
# jax 0.10.2 jit scan; run: python this_file.py
import jax
import jax.numpy as jnp
from jax import lax
from jax.ad_checkpoint import checkpoint_name

jax.config.update("jax_enable_x64", True)
compiled = jax.jit
import numpy as np


def appended(checkpoint):
    """What a function leaves in a list can be used behind it."""
    kept = []

    def block(x):
        kept.append(x * x)
        return x * 2

    return jax.grad(lambda x: checkpoint(block)(x) + kept[0])(3.0)


def outcome(wrap):
    try:
        found = appended(wrap)
        return found if isinstance(found, tuple) else np.array(found)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


plain, checkpointed = outcome(lambda function, **options: function), outcome(jax.checkpoint)
plain, checkpointed = checkpointed if isinstance(checkpointed, tuple) else (plain, checkpointed)
print("plain        ", plain)
print("checkpointed ", checkpointed)
print("same" if np.array_equal(plain, checkpointed) else "DIFFERENT")
