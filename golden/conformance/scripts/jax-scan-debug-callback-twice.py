# errors: Neither run fails, except that a determinism check on values may notice a recomputation without random state.
# at: checkpointed run
# expected: no error
# got: BrokenPromise: What is printed while debugging is printed once. Not so (debug_callback) with jax.checkpoint: [2.0, 2.0], plain [2.0]
# jax 0.10.2 jit scan; run: python this_file.py
import jax
import jax.numpy as jnp
from jax import lax
from jax.ad_checkpoint import checkpoint_name

jax.config.update("jax_enable_x64", True)
compiled = jax.jit
import numpy as np


def debug_callback(checkpoint):
    """What is printed while debugging is printed once."""
    seen = []

    def block(x):
        jax.debug.callback(lambda x: seen.append(float(x)), x * 2)
        return jnp.sin(x)

    jax.grad(checkpoint(block))(1.0)
    jax.effects_barrier()
    return seen


def outcome(wrap):
    try:
        found = debug_callback(wrap)
        return found if isinstance(found, tuple) else np.array(found)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


plain, checkpointed = outcome(lambda function, **options: function), outcome(jax.checkpoint)
plain, checkpointed = checkpointed if isinstance(checkpointed, tuple) else (plain, checkpointed)
print("plain        ", plain)
print("checkpointed ", checkpointed)
same = np.array_equal(plain, checkpointed)
print("same" if same else "DIFFERENT")
raise SystemExit(0 if same else 1)
