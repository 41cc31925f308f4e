# errors: Neither run fails, except that a determinism check on values may notice a recomputation without random state.
# at: checkpointed run
# expected: no error
# got: BrokenPromise: In a loop it is computed again also with prevent_cse=False, which says that it will be. Not so (recomputed_in_loop) with jax.checkpoint: 2, plain 3
# jax 0.10.2 jit scan; run: python this_file.py
import jax
import jax.numpy as jnp
from jax import lax
from jax.ad_checkpoint import checkpoint_name

jax.config.update("jax_enable_x64", True)
compiled = jax.jit
import numpy as np


def recomputed_in_loop(checkpoint):
    """In a loop it is computed again also with prevent_cse=False, which says that it will be."""

    def block(x, _):
        return jnp.sin(jnp.sin(x)), None

    wrapped = checkpoint(block, prevent_cse=False)

    def loss(x):
        return lax.scan(wrapped, x, None, length=3)[0]

    text = jax.jit(jax.grad(loss)).lower(1.0).compile().as_text()
    return text.count(" sine(") - (0 if wrapped is block else 1)


def outcome(wrap):
    try:
        found = recomputed_in_loop(wrap)
        return found if isinstance(found, tuple) else np.array(found)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


plain, checkpointed = outcome(lambda function, **options: function), outcome(jax.checkpoint)
plain, checkpointed = checkpointed if isinstance(checkpointed, tuple) else (plain, checkpointed)
print("plain        ", plain)
print("checkpointed ", checkpointed)
print("same" if np.array_equal(plain, checkpointed) else "DIFFERENT")
