# errors: Neither run fails, except that a determinism check on values may notice a recomputation without random state.
# at: checkpointed run
# expected: no error
# got: BrokenPromise: An argument may be a truth value that the function branches on. Not so (flag) with jax.checkpoint: TracerBoolConversionError: Attempted boolean conversion of traced array with shape bool[].
# The error occurred while tracing the function <lambda> at rematch/adapters/promises/jax.py:42 for checkpoint / remat. This concrete value was not available in Python because it depends on the value of the argument train.
# See https://docs.jax.dev/en/latest/errors.html#jax.errors.TracerBoolConversionError
#
# Consider using the `static_argnums` parameter for `jax.remat` or `jax.checkpoint`. See the `jax.checkpoint` docstring and its example involving `static_argnums`:
# https://docs.jax.dev/en/latest/_autosummary/jax.checkpoint.html
# , plain 2.0
# jax 0.10.2 jit scan; run: python this_file.py
import jax
import jax.numpy as jnp
from jax import lax
from jax.ad_checkpoint import checkpoint_name

jax.config.update("jax_enable_x64", True)
compiled = jax.jit
import numpy as np


def flag(checkpoint):
    """An argument may be a truth value that the function branches on."""
    block = checkpoint(lambda x, train: x * 2 if train else x)
    return jax.grad(lambda x: block(x, True))(1.0)


def outcome(wrap):
    try:
        found = flag(wrap)
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
