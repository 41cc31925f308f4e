# errors: Neither run fails, except that a determinism check on values may notice a recomputation without random state.
# at: checkpointed run
# expected: no error
# got: UnexpectedTracerError: Exception encountered when calling Network.call().
#
# [1mEncountered an unexpected tracer. A function transformed by JAX had a side effect, allowing for a reference to an intermediate value with type uint32[2] wrapped in a DynamicJaxprTracer to escape the scope of the transformation.
# JAX transformations require that functions explicitly return their outputs, and disallow saving intermediate values to global state.
# The function being traced when the value leaked was call at rematch/adapters/keras_.py:29 traced for checkpoint / remat.
# ------------------------------
# The leaked intermediate value was created on line site-packages/keras/src/backend/jax/numpy.py:51:11 (add).
# ------------------------------
# When the value was created, the final 5 stack frames (most recent last) excluding JAX-internal frames were:
# ------------------------------
# site-packages/keras/src/backend/jax/random.py:13:15 (jax_draw_seed)
# site-packages/keras/src/random/seed_generator.py:154:15 (draw_seed)
# site-packages/keras/src/random/seed_generator.py:106:30 (SeedGenerator.next)
# site-packages/keras/src/backend/jax/sparse.py:248:19 (elementwise_binary_union.<locals>.wrap_elementwise_binary_union.<locals>.sparse_wrapper)
# site-packages/keras/src/backend/jax/numpy.py:51:11 (add)
# ------------------------------
#
# To catch the leak earlier, try setting the environment variable JAX_CHECK_TRACER_LEAKS or using the `jax.checking_leaks` context manager.
# See https://docs.jax.dev/en/latest/errors.html#jax.errors.UnexpectedTracerError[0m
#
# Arguments received by Network.call():
#   • values=('jnp.ndarray(shape=(2, 6), dtype=float32)', 'jnp.ndarray(shape=(2, 6), dtype=float32)')
# See https://docs.jax.dev/en/latest/errors.html#jax.errors.UnexpectedTracerError
# keras 3.15.1 on jax; run: python this_file.py
import sys

import os

# Otherwise XLA rounds an operation by what else is compiled with it.
os.environ["XLA_FLAGS"] = (
    "--xla_backend_optimization_level=0 --xla_disable_hlo_passes=fusion,algsimp,constant_folding "
    # Compiles twice as fast.
    "--xla_cpu_use_fusion_emitters=false"
)
os.environ["KERAS_BACKEND"] = "jax"
import keras

seeds = keras.random.SeedGenerator(0)
import numpy as np


class Network(keras.layers.Layer):
    """A layer that calls a function, in the place of an activation."""

    def __init__(self, function):
        super().__init__(name="segment")
        self.activation = function

    def call(self, *values):
        return self.activation(*values)


def scoped(function, **scope):
    with keras.RematScope(**scope):
        return Network(function)


def in_layer(objective, arguments):
    """What runs within a layer takes its mode from the call of that layer."""
    network = Network(lambda x: objective(x, *arguments[1:]))
    return network(arguments[0], training=True)


def value_of(argument):
    if isinstance(argument, list):
        return [value_of(part) for part in argument]
    return argument.value if isinstance(argument, keras.Variable) else argument


def parameters_of(m):
    return list(m.trainable_variables)


def state_of(m):
    seeds = [v for v in m.non_trainable_variables if "seed_generator" in v.path]
    return [v for v in m.non_trainable_variables if not any(v is s for s in seeds)]


def set_mode(m, train):
    m.mode = train


def built(layer, *shape, operands: int = 1):
    layer(*[keras.ops.ones(shape)] * operands)
    return layer


def rows(layer, x):
    """The layer of a sequence that has one example."""
    return layer(x[None], training=layer.mode)[0]


class Updates(keras.StatelessScope):
    """Variables have these values, and keep them: what a forward assigns lies in `made`."""

    def __init__(self, values):
        super().__init__(values)
        self.made: dict[int, Any] = {}

    def add_update(self, update):
        super().add_update(update)
        self.made[id(update[0])] = update


def of_jax(objective, arguments, trained):
    import jax

    def step(values):
        given, variables = list(arguments), []
        for index, value in zip(trained, values, strict=True):
            if isinstance(given[index], list):
                variables += zip(given[index], value, strict=True)
            elif isinstance(given[index], keras.Variable):
                variables.append((given[index], value))
            else:
                given[index] = value
        with Updates(variables) as scope:
            loss, outputs = in_layer(objective, given)
        updated.extend(variable for variable, _ in scope.made.values())
        return loss, (outputs, [value for _, value in scope.made.values()])

    updated: list[Any] = []
    sources = value_of([arguments[i] for i in trained])
    gradients = jax.value_and_grad(step, has_aux=True)
    (loss, (outputs, values)), found = gradients(sources)
    for variable, value in zip(updated, values, strict=True):
        variable.assign(value)
    return loss, outputs, found


x = keras.ops.convert_to_tensor(np.array([[0.1, -0.1, 0.6, 0.1, -0.5, 0.4], [1.3, 0.9, -0.7, -1.3, -0.6, 0.0]], np.float32))
target = keras.ops.convert_to_tensor(np.array([3, 4], np.int32))
weight3 = keras.Variable(np.array([[-2.3, -0.2, -1.2, -0.7, -0.5, -0.3]], np.float32), trainable=not False)
bias3 = keras.Variable(np.array([0.4], np.float32), trainable=not False)
weight5 = keras.Variable(np.array([[1.0], [-0.1], [1.4], [-0.7], [0.4], [0.9]], np.float32), trainable=not False)


def plain(x, w2, weight3, bias3, weight5, w7):
    v0 = x + 0.1 * keras.random.normal(x.shape, seed=seeds)
    v1 = keras.random.dropout(v0, 0.1, seed=seeds)
    v2 = rows(m2, v1)
    v3 = v2 @ keras.ops.transpose(weight3) + bias3
    v4 = keras.ops.gelu(v3, approximate=False)
    v5 = v4 @ keras.ops.transpose(weight5)
    v6, v6_1 = (v5, v5)
    v7 = m7(v6)
    v8 = v7 + x
    return (v8, v6_1,)


def checkpointed(x, w2, weight3, bias3, weight5, w7):
    def checkpointed_segment_0_1(x):
        v0 = x + 0.1 * keras.random.normal(x.shape, seed=seeds)
        return x, v0
    x, v0 = scoped(checkpointed_segment_0_1, mode='full')(x)
    def checkpointed_segment_1_2(v0, x):
        v1 = keras.random.dropout(v0, 0.1, seed=seeds)
        return x, v1
    x, v1 = scoped(checkpointed_segment_1_2, mode='full')(v0, x)
    def checkpointed_segment_2_3(v1, x):
        v2 = rows(m2, v1)
        return x, v2
    x, v2 = scoped(checkpointed_segment_2_3, mode='full')(v1, x)
    def checkpointed_segment_3_4(v2, x):
        v3 = v2 @ keras.ops.transpose(weight3) + bias3
        return x, v3
    x, v3 = scoped(checkpointed_segment_3_4, mode='full')(v2, x)
    def checkpointed_segment_4_9(v3, x):
        v4 = keras.ops.gelu(v3, approximate=False)
        v5 = v4 @ keras.ops.transpose(weight5)
        v6, v6_1 = (v5, v5)
        v7 = m7(v6)
        v8 = v7 + x
        return v8, v6_1
    v8, v6_1 = scoped(checkpointed_segment_4_9, mode='full')(v3, x)
    return (v8, v6_1,)


def run(model):
    global m2
    keras.utils.set_random_seed(2), seeds.state.assign([0, 2])
    m2 = built(keras.layers.GRU(6, return_sequences=True), 1, 2, 6)
    set_mode(m2, True)
    global m7
    keras.utils.set_random_seed(7), seeds.state.assign([0, 7])
    m7 = built(keras.layers.PReLU(), 2, 6)
    set_mode(m7, True)
    w2 = parameters_of(m2)
    w7 = parameters_of(m7)
    keras.utils.set_random_seed(0), seeds.state.assign([0, 0])

    def objective(x, w2, weight3, bias3, weight5, w7):
        outputs = model(x, w2, weight3, bias3, weight5, w7)
        y = outputs[0]
        return keras.ops.mean(keras.losses.sparse_categorical_crossentropy(target, keras.ops.reshape(y, [y.shape[0], -1]), from_logits=True)), outputs

    loss, outputs, gradients = of_jax(objective, [x, w2, weight3, bias3, weight5, w7], [0, 1, 2, 3, 4, 5])
    results = {"loss": loss}
    results |= {f"output {i}": y for i, y in enumerate(outputs)}
    results["gradient of x"] = gradients[0]
    results["gradient of w2"] = gradients[1]
    results["gradient of weight3"] = gradients[2]
    results["gradient of bias3"] = gradients[3]
    results["gradient of weight5"] = gradients[4]
    results["gradient of w7"] = gradients[5]
    results["state of m2"] = state_of(m2)
    results["state of m7"] = state_of(m7)
    results["random state"] = seeds.state
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
