# errors: Neither run fails, except that a determinism check on values may notice a recomputation without random state.
# at: checkpointed run
# expected: no error
# got: BrokenPromise: A mask that the host draws is the same in the output and its gradient. Not so (host_random) with jax.checkpoint: [1.0, 0.0, 0.0, -1.0, 0.0, 1.0, 1.0, 0.0, -1.0], plain [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
# jax 0.10.2; run: python this_file.py
import os

# Otherwise XLA rounds an operation by what else is compiled with it.
os.environ["XLA_FLAGS"] = (
    "--xla_backend_optimization_level=0 --xla_disable_hlo_passes=fusion,algsimp,constant_folding "
    # Compiles twice as fast.
    "--xla_cpu_use_fusion_emitters=false"
)
import jax
import jax.numpy as jnp
from jax import lax
from jax.ad_checkpoint import checkpoint_name

jax.config.update("jax_enable_x64", True)
compiled = lambda step: step
import numpy as np


def host_random(checkpoint):
    """A mask that the host draws is the same in the output and its gradient."""
    generator = np.random.default_rng(3)

    def block(x):
        shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
        drawn = jax.pure_callback(lambda: generator.integers(0, 2, 9).astype(x.dtype), shape)
        return x * x * drawn

    y, pull = jax.vjp(checkpoint(block), jnp.ones(9))
    return y - pull(jnp.ones(9))[0] / 2


def outcome(wrap):
    try:
        found = host_random(wrap)
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
