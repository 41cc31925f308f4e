# outputs: Every forward returns the same bits as the plain run.
# at: step 0, microbatch 1, output 0, element 5 (first of 8 that differ, of 16)
# expected: -1.66752422 (0xbfd5716f)
# got: 0 (0x00000000)
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


def dropout(x, p, key):
    mask = jax.random.bernoulli(key, 1 - p, x.shape)
    return checkpoint_name(jnp.where(mask, x * (1 / (1 - p)), 0), "kept")


def differentiate(objective, arguments, trained):
    if not trained:
        return (*objective(*arguments), [])
    step = nnx.value_and_grad(objective, argnums=tuple(trained), has_aux=True)
    (loss, outputs), gradients = step(*arguments)
    return loss, outputs, [jax.tree.leaves(g) if isinstance(g, nnx.State) else g for g in gradients]


def numbers(value):
    if isinstance(value, (list, tuple)):
        value = np.concatenate([np.ravel(part) for part in value] or [[]])
    return np.array(value).tolist()


x = jnp.array(np.array([[0.1, -0.1, 0.6, 0.1, -0.5, 0.4, 1.3, 0.9, -0.7, -1.3, -0.6, 0.0, -2.3, -0.2, -1.2, -0.7]], np.float32))
target = jnp.array(np.array([[0.30829012393951416, -0.01107800006866455, 0.5757807493209839, -0.27048999071121216, -0.28079473972320557, 0.7586703300476074, -0.15706276893615723, 0.10790908336639404, 0.6011084318161011, 0.08747458457946777, -0.3414185643196106, 0.34548723697662354, -0.07403981685638428, -0.2848992943763733, 0.7239762544631958, 0.648617148399353]], np.float32))


def plain(x, rngs):
    v0 = dropout(x, 0.5, rngs())
    return (v0,)


def checkpointed_segment_0_1(x, rngs):
    v0 = dropout(x, 0.5, rngs())
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
    loss, outputs, gradients = differentiate(objective, [x, rngs], [0])
    results = {"loss": loss}
    results |= {f"output {i}": y for i, y in enumerate(outputs)}
    results["gradient of x"] = gradients[0]
    results["random state"] = rngs.default.count[...]
    return {name: numbers(value) for name, value in results.items()}


expected, got = run(plain), run(checkpointed)
different = [name for name in got if repr(expected.get(name)) != repr(got.get(name))]
for name in different:
    print(f"{name}\n  expected      {str(expected.get(name))[:999]}")
    print(f"  checkpointed  {str(got.get(name))[:999]}")
print("DIFFERENT: " + ", ".join(different) if different else "same")
sys.exit(1 if different else 0)
