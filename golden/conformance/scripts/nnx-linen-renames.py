# errors: Neither run fails, except that a determinism check on values may notice a recomputation without random state.
# at: checkpointed run
# expected: no error
# got: BrokenPromise: linen: a checkpointed layer has the name and the initial weights of the layer. Not so (linen_names) with nnx.remat: [0.0, 0.902890682220459, -0.6746214032173157, -0.006601705215871334, 0.7915504574775696], plain [1.0, -1.1679985523223877, 0.5335484147071838, -0.9742164611816406, -0.6024712324142456]
# flax.nnx 0.12.8; run: python this_file.py
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
from flax import nnx
import numpy as np


def linen_names(checkpoint):
    """linen: a checkpointed layer has the name and the initial weights of the layer."""
    from flax import linen as nn

    remat = nn.remat if checkpoint is nnx.remat else checkpoint

    class Block(nn.Module):
        @nn.compact
        def __call__(self, x):
            return remat(nn.Dense)(2)(x)

    found = Block().init(jax.random.key(0), jnp.ones((1, 2)))["params"]
    return [list(found) == ["Dense_0"], *jax.tree.leaves(found)[1].ravel()]


def outcome(wrap):
    try:
        found = linen_names(wrap)
        return found if isinstance(found, tuple) else np.array(found)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


plain, checkpointed = outcome(lambda function, **options: function), outcome(nnx.remat)
plain, checkpointed = checkpointed if isinstance(checkpointed, tuple) else (plain, checkpointed)
print("plain        ", plain)
print("checkpointed ", checkpointed)
same = np.array_equal(plain, checkpointed)
print("same" if same else "DIFFERENT")
raise SystemExit(0 if same else 1)
