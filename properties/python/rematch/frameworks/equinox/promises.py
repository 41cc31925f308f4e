"""Promises that users of `eqx.filter_checkpoint()` rely on beside equal gradients of modules."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from rematch.frameworks.jax import promises as of_jax
from rematch.subjects.promises import promises_in


def module_itself(checkpoint):
    """A module can be checkpointed as it is, being a function."""
    layer = eqx.nn.Linear(2, 2, key=jax.random.key(0))
    return eqx.filter_grad(lambda m: checkpoint(m)(jnp.ones(2)).sum())(layer).weight


def module_argument(checkpoint):
    """It may be an argument, by position or keyword, and be closed over."""
    layer = eqx.nn.Linear(2, 2, key=jax.random.key(0))

    def loss(m):
        y = checkpoint(lambda m, x: m(x))(m, jnp.ones(2))
        y = checkpoint(lambda x, m: m(x))(y, m=m)
        return checkpoint(lambda x: m(x))(y).sum()

    return eqx.filter_grad(loss)(layer).weight


def defined_method(checkpoint):
    """A method can be checkpointed where it is defined."""

    class Block(eqx.Module):
        weight: jax.Array
        name: str

        @checkpoint
        def __call__(self, x, twice=False):
            return x * self.weight**2 * (2 if twice and self.name == "a" else 1)

    return eqx.filter_grad(lambda m: m(3.0, twice=True))(Block(jnp.array(2.0), "a")).weight


def other_arguments(checkpoint):
    """Arguments may be text, flags, functions, sizes and None, and results as well."""

    def block(x, name, train, function, size, none):
        assert name == "a" and none is None
        return (function(x) if train else x) * jnp.ones(size), name, train, function, none

    def loss(x):
        y, name, train, function, none = checkpoint(block)(x, "a", True, jnp.sin, 3, None)
        assert function is jnp.sin
        return y.sum() * (name == "a") * train

    return eqx.filter_grad(loss)(0.0)


def equal_numbers(checkpoint):
    """Numbers of different types are told apart, also if they are equal."""
    block = checkpoint(lambda x, s: x * (2 if isinstance(s, float) else 3))
    return [jax.grad(lambda x, s=s: block(x, s))(1.0) for s in (1, 1.0)]


def zero_signs(checkpoint):
    """Zeros of different signs are told apart."""
    block = checkpoint(lambda x, s: x * np.copysign(1.0, s))
    return [jax.grad(lambda x, s=s: block(x, s))(1.0) for s in (0.0, -0.0)]


def equal_fields(checkpoint):
    """Fields of modules are told apart, static or not."""

    class Block(eqx.Module):
        power: Any
        fixed: Any = eqx.field(static=True)

        def __call__(self, x):
            return x * (2 if isinstance(self.power, float) else 3) * type(self.fixed)(7.9)

    found = [Block(1, 1), Block(1.0, 1), Block(1, 1.0)]
    return [jax.grad(lambda x, m=m: checkpoint(lambda m, x: m(x))(m, x))(1.0) for m in found]


def equal_fields_of_one(checkpoint):
    """Equal fields are told apart by one checkpointed function, too."""

    class Block(eqx.Module):
        power: Any
        fixed: Any = eqx.field(static=True)

    def run(m, x):
        return x * (2 if isinstance(m.power, float) else 3) * type(m.fixed)(7.9)

    block, found = checkpoint(run), [Block(1, 1), Block(1.0, 1), Block(1, 1.0)]
    return [jax.grad(lambda x, m=m: block(m, x))(1.0) for m in found]


def changed_field(checkpoint):
    """Modules that differ in a static field are different."""

    class Block(eqx.Module):
        scale: float = eqx.field(static=True)

    block = checkpoint(lambda m, x: x * m.scale)
    return [jax.grad(lambda x, s=s: block(Block(s), x))(1.0) for s in (2.0, 5.0)]


def unhashable_field(checkpoint):
    """A static field may be a list."""

    class Block(eqx.Module):
        sizes: list = eqx.field(static=True)

    return jax.grad(lambda x: checkpoint(lambda m, x: x * m.sizes[1])(Block([2, 3]), x))(1.0)


numpy_argument = of_jax.numpy_argument


def numpy_changes(checkpoint):
    """A NumPy array may change between two calls."""
    a, block = np.ones(2), checkpoint(lambda x, a: (x * a).sum())
    first = jax.grad(lambda x: block(x, a))(1.0)
    a[:] = 5
    return [first, jax.grad(lambda x: block(x, a))(1.0)]


closed_over_changes = of_jax.closed_over_changes


def statistics(checkpoint):
    """A state goes through, and running statistics are updated once."""
    layer, state = eqx.nn.make_with_state(eqx.nn.BatchNorm)(2, "rows", mode="ema")
    x = jnp.array([[1.0, 2.0], [3.0, 8.0]])

    def loss(m, state):
        block = checkpoint(jax.vmap(m, axis_name="rows", in_axes=(0, None), out_axes=(0, None)))
        y, state = block(x, state)
        y, state = block(y, state)
        return (y * x).sum(), state

    state = eqx.filter_grad(loss, has_aux=True)(layer, state)[1]
    return jnp.concatenate([a for a in jax.tree.leaves(state) if jnp.ndim(a)]).round(5)


def used_state(checkpoint):
    """A state that was used cannot be used again."""
    index = eqx.nn.StateIndex(jnp.array(0.0))
    state = eqx.nn.State(index)

    def block(state):
        return state.set(index, state.get(index) + 1)

    new = checkpoint(block)(state)
    try:
        state.get(index)
    except ValueError as error:
        return [new.get(index), "old state" in str(error)]
    return [new.get(index), False]


def dropout(checkpoint):
    """Dropout may be switched by its field and by the argument `inference`, and needs a key."""
    layer, x = eqx.nn.Dropout(0.5), jnp.ones(9)
    block, key = checkpoint(lambda m, x, key, inference: m(x, key=key, inference=inference)), None
    found = [block(layer, x, key, True), block(eqx.nn.inference_mode(layer), x, key, None)]
    y, pull = jax.vjp(lambda x: block(layer, x * x, jax.random.key(0), None), x)
    try:
        block(layer, x, key, None)
    except RuntimeError:
        return [*found, y, y - pull(x)[0] / 2]


def returns_module(checkpoint):
    """A module may be returned, and used behind it."""
    layer = eqx.nn.MLP(2, 2, 2, 1, key=jax.random.key(0))
    double = checkpoint(lambda m: jax.tree.map(lambda a: a * 2 if eqx.is_array(a) else a, m))
    found = eqx.filter_grad(lambda m: double(m)(jnp.ones(2)).sum())(layer)
    return found.layers[1].weight


def shared(checkpoint):
    """Layers that share a weight still do."""
    weight = jnp.ones((2, 2))
    pair = eqx.nn.Shared([weight, weight * 1], lambda p: p[1], lambda p: p[0])
    step = checkpoint(lambda p, x: p()[1] @ (p()[0] @ x))
    return jax.tree.leaves(eqx.filter_grad(lambda p: step(p, jnp.ones(2)).sum())(pair))


def error_within(checkpoint):
    """eqx.error_if() within raises its error."""

    def block(x):
        return jnp.sin(eqx.error_if(x, x > 1, "too large"))

    try:
        eqx.filter_jit(jax.grad(checkpoint(block)))(2.0)
    except Exception as error:
        return ["too large" in str(error)]


def own_derivative(checkpoint):
    """A function's own derivative is used within."""

    @eqx.filter_custom_vjp
    def triple(x):
        return x * 1

    triple.def_fwd(lambda perturbed, x: (x * 1, x))
    triple.def_bwd(lambda r, g, perturbed, x: 3 * g * r)
    return jax.grad(checkpoint(lambda x: triple(x) * x))(jnp.array(2.0))


def vectorized(checkpoint):
    """Modules that are mapped can be checkpointed, compiled and with donated arguments."""
    layers = eqx.filter_vmap(lambda k: eqx.nn.Linear(2, 2, key=k))(jax.random.split(jax.random.key(0), 2))

    def loss(m):
        block = checkpoint(eqx.filter_vmap(lambda m, x: m(x), in_axes=(eqx.if_array(0), None)))
        return block(m, jnp.ones(2)).sum()

    return eqx.filter_jit(eqx.filter_grad(loss), donate="all")(layers).weight


def policies(checkpoint):
    """No policy changes gradients."""
    names = ("everything_saveable", "nothing_saveable", "dots_saveable")
    layer, found = eqx.nn.Linear(2, 2, key=jax.random.key(0)), []
    for name in names:
        block = checkpoint(layer, policy=getattr(jax.checkpoint_policies, name))
        found.append(jax.grad(lambda x, block=block: block(block(x)).sum())(jnp.ones(2)))
    return found


names_stay = of_jax.names_stay
PROMISES = promises_in(globals())
