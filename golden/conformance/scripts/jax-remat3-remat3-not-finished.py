# errors: Neither run fails, except that a determinism check on values may notice a recomputation without random state.
# at: checkpointed run
# expected: no error
# got: BrokenPromise: Functions that run on each device may be checkpointed, and be in ones that are. Not so (sharded) with jax.checkpoint: AttributeError: 'RematTrace' object has no attribute 'process_shard_map', plain [2.0, 2.0]
# jax 0.10.2 remat3; run: python this_file.py
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
jax.config.update("jax_remat3", True)
import numpy as np


def sharded(checkpoint):
    """Functions that run on each device may be checkpointed, and be in ones that are."""
    over = jax.sharding.PartitionSpec("i")
    mesh = jax.make_mesh((1,), ("i",), (jax.sharding.AxisType.Auto,))

    def scaled(x):
        return x * jax.lax.psum(x, "i")

    each = jax.shard_map(checkpoint(scaled), mesh=mesh, in_specs=over, out_specs=over)
    return jax.jit(jax.grad(lambda x: checkpoint(each)(x).sum()))(jnp.ones(2))


def outcome(wrap):
    try:
        found = sharded(wrap)
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
