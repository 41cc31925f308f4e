# errors: Neither run fails, except that a determinism check on values may notice a recomputation without random state.
# at: checkpointed run
# expected: no error
# got: BrokenPromise: What is made as an array is returned as one, constants too. Not so (constant_result) with jax.checkpoint: [False, False], plain [True, True]
# jax 0.10.2 jit scan; run: python this_file.py
import jax
import jax.numpy as jnp
from jax import lax
from jax.ad_checkpoint import checkpoint_name

jax.config.update("jax_enable_x64", True)
compiled = jax.jit
import numpy as np


def constant_result(checkpoint):
    """What is made as an array is returned as one, constants too."""
    made = checkpoint(lambda x: (x, jnp.full((), True), jnp.full((), 2)))(1.0)[1:]
    return [isinstance(a, jax.Array) for a in made]


def outcome(wrap):
    try:
        found = constant_result(wrap)
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
