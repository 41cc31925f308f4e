# errors: Neither run fails, except that a determinism check on values may notice a recomputation without random state.
# at: checkpointed run
# expected: no error
# got: BrokenPromise: A reference may change before the backward, and gradients are still those of the output. Not so (read_reference) with jax.checkpoint: 7.0, plain 2.0
# jax 0.10.2; run: python this_file.py
import os

# Otherwise XLA rounds an operation by what else is compiled with it.
os.environ["XLA_FLAGS"] = (
    "--xla_backend_optimization_level=0 --xla_disable_hlo_passes=fusion,algsimp,constant_folding"
)
import jax
import jax.numpy as jnp
from jax import lax
from jax.ad_checkpoint import checkpoint_name

jax.config.update("jax_enable_x64", True)
compiled = lambda step: step
import numpy as np


def read_reference(checkpoint):
    """A reference may change before the backward, and gradients are still those of the output."""
    scale = jax.new_ref(jnp.float32(2.0))
    y, pull = jax.vjp(checkpoint(lambda x: jnp.sin(x) * scale[...]), jnp.float32(0))
    scale[...] = 7.0
    return pull(jnp.ones_like(y))[0]


def outcome(wrap):
    try:
        found = read_reference(wrap)
        return found if isinstance(found, tuple) else np.array(found)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


plain, checkpointed = outcome(lambda function, **options: function), outcome(jax.checkpoint)
plain, checkpointed = checkpointed if isinstance(checkpointed, tuple) else (plain, checkpointed)
print("plain        ", plain)
print("checkpointed ", checkpointed)
print("same" if np.array_equal(plain, checkpointed) else "DIFFERENT")
