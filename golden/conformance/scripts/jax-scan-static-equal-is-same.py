# errors: Neither run fails, except that a determinism check on values may notice a recomputation without random state.
# at: checkpointed run
# expected: no error
# got: BrokenPromise: Static arguments of different types are told apart, also if they are equal. Not so (static_equal) with jax.checkpoint: [3.0, 3.0], plain [3.0, 2.0]
# jax 0.10.2 jit scan; run: python this_file.py
import jax
import jax.numpy as jnp
from jax import lax
from jax.ad_checkpoint import checkpoint_name

jax.config.update("jax_enable_x64", True)
compiled = jax.jit
import numpy as np


def static_equal(checkpoint):
    """Static arguments of different types are told apart, also if they are equal."""
    block = checkpoint(lambda x, s: x * (2 if isinstance(s, float) else 3), static_argnums=1)
    return [jax.grad(lambda x, s=s: block(x, s))(1.0) for s in (1, 1.0)]


def outcome(wrap):
    try:
        found = static_equal(wrap)
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
