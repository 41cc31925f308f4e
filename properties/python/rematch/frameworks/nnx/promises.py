"""Promises that users of `nnx.remat()` rely on beside equal gradients of modules."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from rematch.frameworks.jax import promises as of_jax
from rematch.subjects.promises import promises_in


def statistics(checkpoint):
    """Running statistics are updated once, and random counts go on as they would."""
    layer = nnx.Sequential(nnx.BatchNorm(2, rngs=nnx.Rngs(0)), nnx.Dropout(0.5, rngs=nnx.Rngs(dropout=3)))
    x = jnp.array([[1.0, 2.0], [3.0, 8.0]])
    for _ in range(2):
        nnx.grad(lambda m: checkpoint(lambda m, x: m(x))(m, x).sum())(layer)
    return [*layer.layers[0].mean[...], layer.layers[1].rngs.count[...]]


def closed_over_module(checkpoint):
    """A module that a checkpointed function closes over is trained."""
    layer = nnx.Linear(2, 2, rngs=nnx.Rngs(0))
    found = nnx.grad(lambda m: checkpoint(lambda x: m(x))(jnp.ones((1, 2))).sum())(layer)
    return found["kernel"][...]


def module_itself(checkpoint):
    """A module can be checkpointed as it is, being a function."""
    layer = nnx.Linear(2, 2, rngs=nnx.Rngs(0))
    return nnx.grad(lambda m: checkpoint(m)(jnp.ones((1, 2))).sum())(layer)["kernel"][...]


def bound_method(checkpoint):
    """So can the method of a module."""
    layer = nnx.Linear(2, 2, rngs=nnx.Rngs(0))
    found = nnx.grad(lambda m: checkpoint(m.__call__)(jnp.ones((1, 2))).sum())(layer)
    return found["kernel"][...]


def defined_method(checkpoint):
    """A method can be checkpointed where it is defined, and change what the module keeps."""

    class Block(nnx.Module):
        def __init__(self, rngs):
            self.linear, self.seen = nnx.Linear(2, 2, rngs=rngs), nnx.BatchStat(jnp.zeros(()))

        @checkpoint
        def __call__(self, x):
            self.seen.set_value(self.seen[...] + x.sum())
            return self.linear(x)

    block = Block(nnx.Rngs(0))
    found = nnx.grad(lambda m: m(m(jnp.ones((1, 2)))).sum())(block)
    return [*found["linear"]["bias"][...], block.seen[...]]


def keyword_argument(checkpoint):
    """Arguments may be given by keyword, modules too."""
    layer = nnx.Linear(2, 2, rngs=nnx.Rngs(0))
    block = checkpoint(lambda x, m, scale: m(x) * scale)
    return nnx.grad(lambda m: block(jnp.ones((1, 2)), scale=2.0, m=m).sum())(layer)["kernel"][...]


def static_flag(checkpoint):
    """A function may branch on a static argument."""
    layer = nnx.Linear(2, 2, rngs=nnx.Rngs(0))
    block = checkpoint(lambda m, x, twice: m(m(x)) if twice else m(x), static_argnums=2)
    return nnx.grad(lambda m: block(m, jnp.ones((1, 2)), True).sum())(layer)["kernel"][...]


static_equal = of_jax.static_equal


def attribute_equal(checkpoint):
    """So are attributes of modules, also if they are equal."""

    class Block(nnx.Module):
        def __init__(self, power):
            self.power = power

    block = checkpoint(lambda m, x: x * (2 if isinstance(m.power, float) else 3))
    return [jax.grad(lambda x, s=s: block(Block(s), x))(1.0) for s in (1, 1.0)]


def attribute_changes(checkpoint):
    """Attributes may change between two calls and within one."""

    class Block(nnx.Module):
        scale = 2
        calls = 0

        def __call__(self, x):
            self.calls += 1
            return x * x * self.scale

    module, block, found = Block(), checkpoint(lambda m, x: m(x)), []
    for module.scale in (2, 5):
        found.append(block(module, 1.0))
    return [*found, module.calls]


closed_over_changes = of_jax.closed_over_changes


def shared_module(checkpoint):
    """One module may be two arguments."""
    layer = nnx.Linear(2, 2, rngs=nnx.Rngs(0))
    block = checkpoint(lambda a, b, x: a(b(x)))
    return nnx.grad(lambda m: block(m, m, jnp.ones((1, 2))).sum())(layer)["kernel"][...]


def modules_in_tree(checkpoint):
    """Modules may be in lists and dictionaries."""
    layer = nnx.Linear(2, 2, rngs=nnx.Rngs(0))
    block = checkpoint(lambda p: p["m"][0](p["x"]))
    return nnx.grad(lambda m: block({"m": [m], "x": jnp.ones((1, 2))}).sum())(layer)["bias"][...]


def bare_parameter(checkpoint):
    """A parameter may be an argument, and be changed."""
    weight, seen = nnx.Param(jnp.ones(2) * 3), nnx.Variable(jnp.zeros(()))

    def block(w, seen, x):
        seen.set_value(seen[...] + 1)
        return w * w * x

    step = nnx.grad(lambda w, seen: checkpoint(block)(w, seen, jnp.ones(2)).sum())
    found = step(weight, seen)
    return [*found[...], seen[...]]


def created_variable(checkpoint):
    """A variable that the function adds to a module is still in the module afterwards."""

    class Block(nnx.Module):
        def __call__(self, x):
            self.cache = nnx.Variable(x * 2)
            self.sow(nnx.Intermediate, "seen", x)
            return x * self.cache[...]

    module = Block()
    y = checkpoint(lambda m, x: m(x))(module, jnp.ones(2))
    return [y, *jax.tree.leaves(nnx.state(module))]


def replaced_module(checkpoint):
    """A module may be replaced and another be taken away, and new ones be returned."""

    class Block(nnx.Module):
        def __init__(self):
            self.a, self.b = nnx.Param(jnp.ones(2)), nnx.Param(jnp.ones(3))

    def block(m):
        m.a = nnx.Param(m.a[...] * 5)
        del m.b
        return nnx.Linear(2, 2, rngs=nnx.Rngs(0))

    module = Block()
    made = checkpoint(block)(module)
    return [*module.a[...], hasattr(module, "b"), made.kernel[0, 0]]


def same_objects(checkpoint):
    """Modules and variables are afterwards the objects that they were."""
    layer = nnx.BatchNorm(2, rngs=nnx.Rngs(0))
    mean, scale = layer.mean, layer.scale
    checkpoint(lambda m, x: m(x))(layer, jnp.ones((2, 2)))
    return [layer.mean is mean, layer.scale is scale]


def returns_argument(checkpoint):
    """A module that is returned is the one that was given."""
    layer = nnx.Linear(2, 2, rngs=nnx.Rngs(0))
    return [checkpoint(lambda m: m)(layer) is layer]


def mode_changes(checkpoint):
    """The mode may be changed within, and stays."""
    layer = nnx.Dropout(0.5, rngs=nnx.Rngs(0))

    def block(m, x):
        m.eval()
        return m(x)

    return [*checkpoint(block)(layer, jnp.ones(4)), layer.deterministic]


def loops(checkpoint):
    """nnx.scan() runs checkpointed functions over stacked modules, compiled."""

    @nnx.vmap(in_axes=0, out_axes=0)
    def make(key):
        return nnx.Linear(2, 2, rngs=nnx.Rngs(key))

    @nnx.scan(in_axes=(nnx.Carry, 0), out_axes=nnx.Carry)
    def run(x, layer):
        return checkpoint(lambda m, x: m(x))(layer, x)

    layers = make(jax.random.split(jax.random.key(0), 3))
    step = nnx.jit(nnx.grad(lambda m: run(jnp.ones((1, 2)), m).sum()))
    return np.round(step(layers)["kernel"][...], 5)


def nested(checkpoint):
    """Checkpointed functions may be within one another, and all changes are made once."""
    layer = nnx.BatchNorm(2, rngs=nnx.Rngs(0))
    x = jnp.array([[1.0, 2.0], [3.0, 8.0]])
    inner = checkpoint(lambda m, x: m(m(x)))
    outer = checkpoint(lambda m, x: inner(m, m(x)))
    nnx.grad(lambda m: outer(m, x).sum())(layer)
    return np.round(layer.mean[...], 5)


def error_passes(checkpoint):
    """An error comes through as it is, and the module can still be used."""
    layer = nnx.Variable(jnp.ones(()))

    def fails(v):
        v.set_value(v[...] + 1)
        raise KeyError("mine")

    try:
        checkpoint(fails)(layer)
    except KeyError as error:
        said = str(error) == "'mine'"
    return [said, float(layer[...] * 0)]


def policies(checkpoint):
    """No policy changes what modules keep."""
    found = []
    for name in ("everything_saveable", "nothing_saveable", "dots_saveable"):
        layer = nnx.BatchNorm(2, rngs=nnx.Rngs(0))
        policy = getattr(jax.checkpoint_policies, name)
        block = checkpoint(lambda m, x: m(x), policy=policy, prevent_cse=False)
        nnx.grad(lambda m, block=block: block(m, jnp.ones((2, 2))).sum())(layer)
        found.append(layer.mean[...])
    return found


PROMISES = promises_in(globals())
