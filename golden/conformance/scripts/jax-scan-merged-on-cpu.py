# errors: Neither run fails, except that a determinism check on values may notice a recomputation without random state.
# at: checkpointed run
# expected: no error
# got: BrokenPromise: In a compiled step the function is computed again, in one without gradients it is not. Not so (recomputed) with jax.checkpoint: [0, 2], plain [2, 2]
# jax 0.10.2 jit scan; run: python this_file.py
import jax
import jax.numpy as jnp
from jax import lax
from jax.ad_checkpoint import checkpoint_name

jax.config.update("jax_enable_x64", True)
compiled = jax.jit
import numpy as np


def recomputed(checkpoint):
    """In a compiled step the function is computed again, in one without gradients it is not."""

    def block(x):
        return jnp.sin(jnp.sin(x) @ x) @ x

    def sines(step):
        return jax.jit(step).lower(jnp.ones((4, 4))).compile().as_text().count(" sine(")

    wrapped = checkpoint(block)
    again = 0 if wrapped is block else 2
    return [sines(jax.value_and_grad(lambda x: wrapped(x).sum())) - again, sines(wrapped)]


def outcome(wrap):
    try:
        found = recomputed(wrap)
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
