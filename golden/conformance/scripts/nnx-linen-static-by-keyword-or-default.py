# errors: Neither run fails, except that a determinism check on values may notice a recomputation without random state.
# at: checkpointed run
# expected: no error
# got: BrokenPromise: linen: so it may if it is static, and it has a default. Not so (linen_static_flag) with nnx.remat: ValueError: the `static_argnums` argument to `jax.checkpoint` / `jax.remat` can only take integer values greater than or equal to `-len(args)` and less than `len(args)`, but got (3,), while `len(args)` = 3, plain [[1.0, 1.0], [2.0, 2.0]]
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


def linen_static_flag(checkpoint):
    """linen: so it may if it is static, and it has a default."""
    from flax import linen as nn

    remat = nn.remat if checkpoint is nnx.remat else checkpoint

    class Layer(nn.Module):
        @nn.compact
        def __call__(self, x, train=True):
            return x * 2 if train else x

    layer = remat(Layer, static_argnums=2)()
    return [layer.apply({}, jnp.ones(2), False), layer.apply({}, jnp.ones(2))]


def outcome(wrap):
    try:
        found = linen_static_flag(wrap)
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
