# rng-after-forward: A forward leaves all random streams as the plain run does, and advances each by the words that its layers draw from it.
# at: step 0, microbatch 0, stream 0
# expected: seed 5138245834303224199, offset 0
# got: seed 5657698912149702814, offset 0
# flax.nnx 0.12.8 by jax.checkpoint(); run: python this_file.py
import sys

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


def differentiate(objective, arguments, trained):
    if not trained:
        return (*objective(*arguments), [])
    step = nnx.value_and_grad(objective, argnums=tuple(trained), has_aux=True)
    (loss, outputs), gradients = step(*arguments)
    return loss, outputs, [jax.tree.leaves(g) if isinstance(g, nnx.State) else g for g in gradients]


x = jnp.array(np.array([[0.1], [-0.1], [0.6]], np.float32))
target = jnp.array(np.array([[-0.3662227392196655], [0.7882483005523682], [0.2970426380634308]], np.float32))


def plain(x, rngs):
    v0 = x + 0.5 * jax.random.normal(rngs(), x.shape, x.dtype)
    return (v0,)


def checkpointed_segment_0_1(x, rngs):
    v0 = x + 0.5 * jax.random.normal(rngs(), x.shape, x.dtype)
    return v0


def checkpointed(x, rngs):
    v0 = jax.checkpoint(checkpointed_segment_0_1)(x, rngs)
    return (v0,)


def run(model):
    rngs = nnx.Rngs(0)

    def objective(x, rngs):
        outputs = model(x, rngs)
        y = outputs[0]
        return ((y.reshape(target.shape) - target) ** 2).mean(), outputs

    loss, outputs, gradients = differentiate(objective, [x, rngs], [0])
    results = {"loss": loss}
    results |= {f"output {i}": y for i, y in enumerate(outputs)}
    results["gradient of x"] = gradients[0]
    results["random state"] = rngs.default.count[...]
    return {name: numbers(value) for name, value in results.items()}


def numbers(value):
    if isinstance(value, (list, tuple)):
        return np.concatenate([np.ravel(part) for part in value] or [[]])
    return np.array(value)


def outcome(model):
    try:
        return run(model)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


plain_results, results = outcome(plain), outcome(checkpointed)
different = []
for name in ["error"] if "error" in plain_results | results else plain_results:
    expected, got = plain_results.get(name), results.get(name)
    print(f"{name}\n  plain         {expected}\n  checkpointed  {got}")
    if not np.array_equal(expected, got):
        different.append(name)
print("DIFFERENT: " + ", ".join(different) if different else "same")
sys.exit(1 if different else 0)
