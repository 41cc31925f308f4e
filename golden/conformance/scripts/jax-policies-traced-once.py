# errors: Neither run fails, except that a determinism check on values may notice a recomputation without random state.
# at: checkpointed run
# expected: no error
# got: BrokenPromise: Each call draws with NumPy what it uses as numbers. Not so (host_drawn) with jax.checkpoint: [[81.0, 8.0, 17.0], [81.0, 8.0, 17.0]], plain [[81.0, 8.0, 17.0], [23.0, 18.0, 80.0]]
# jax 0.10.2 policies; run: python this_file.py
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


def host_drawn(checkpoint):
    """Each call draws with NumPy what it uses as numbers."""
    generator = np.random.default_rng(3)
    block = checkpoint(lambda x: x * generator.integers(0, 100, 3))
    return [block(1.0), block(1.0)]


def outcome(wrap):
    try:
        found = host_drawn(wrap)
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
