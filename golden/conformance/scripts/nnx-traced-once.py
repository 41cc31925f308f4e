# errors: Neither run fails, except that a determinism check on values may notice a recomputation without random state.
# at: checkpointed run
# expected: no error
# got: BrokenPromise: What a function closes over may change between two calls. Not so (closed_over_changes) with nnx.remat: [4.0, 4.0], plain [4.0, 10.0]
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


def closed_over_changes(checkpoint):
    """What a function closes over may change between two calls."""
    now = {"scale": 2.0}
    block, found = checkpoint(lambda x: x * x * now["scale"]), []
    for now["scale"] in (2.0, 5.0):
        found.append(jax.grad(block)(1.0))
    return found


def outcome(wrap):
    try:
        found = closed_over_changes(wrap)
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
