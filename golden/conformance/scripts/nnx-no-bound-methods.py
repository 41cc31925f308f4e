# errors: Neither run fails, except that a determinism check on values may notice a recomputation without random state.
# at: checkpointed run
# expected: no error
# got: BrokenPromise: So can the method of a module. Not so (bound_method) with nnx.remat: ValueError: nnx.remat does not support bound methods. Use the decorator form @nnx.remat or call nnx.remat(MyClass.method)(instance, ...) with the unbound method., plain [[1.0, 1.0], [1.0, 1.0]]
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


def bound_method(checkpoint):
    """So can the method of a module."""
    layer = nnx.Linear(2, 2, rngs=nnx.Rngs(0))
    found = nnx.grad(lambda m: checkpoint(m.__call__)(jnp.ones((1, 2))).sum())(layer)
    return found["kernel"][...]


def outcome(wrap):
    try:
        found = bound_method(wrap)
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
