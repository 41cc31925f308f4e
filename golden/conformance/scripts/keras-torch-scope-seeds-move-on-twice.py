# dropout-masks: Every recomputation of a random layer draws what its forward drew, and every forward what the plain run drew.
# at: step 0, microbatch 0, layer 1 (dropout), draws
# expected: 2
# got: 1
# keras 3.15.1 on torch; run: python this_file.py
import sys

import os

os.environ["KERAS_BACKEND"] = "torch"
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


def whole(gradients, sources):
    """With zeros for what is missing of a module's gradients, unless all are."""
    if not isinstance(sources, list) or all(g is None for g in gradients):
        return None if isinstance(sources, list) else gradients
    pairs = zip(gradients, sources, strict=True)
    return [keras.ops.zeros_like(s) if g is None else g for g, s in pairs]


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


def of_torch(objective, arguments, trained):
    for index, argument in enumerate(value_of(arguments)):
        for part in argument if isinstance(argument, list) else [argument]:
            part.requires_grad_(index in trained)
            part.grad = None
    loss, outputs = in_layer(objective, arguments)
    if loss.requires_grad:
        loss.backward()
    sources = value_of([arguments[i] for i in trained])
    found = [[p.grad for p in s] if isinstance(s, list) else s.grad for s in sources]
    gradients = [whole(g, s) for g, s in zip(found, sources, strict=True)]
    return loss.detach(), [y.detach() for y in outputs], gradients


x = keras.ops.convert_to_tensor(np.array([[0.1, -0.1, 0.6, 0.1, -0.5, 0.4], [1.3, 0.9, -0.7, -1.3, -0.6, 0.0]], np.float32))
target = keras.ops.convert_to_tensor(np.array([3, 4], np.int32))


def plain(x, w2):
    v0 = x + 0.1 * keras.random.normal(x.shape, seed=seeds)
    v1 = keras.random.dropout(v0, 0.1, seed=seeds)
    v2 = rows(m2, v1)
    return (v2,)


def checkpointed(x, w2):
    def checkpointed_segment_0_1(x):
        v0 = x + 0.1 * keras.random.normal(x.shape, seed=seeds)
        return v0
    v0 = scoped(checkpointed_segment_0_1, mode='full')(x)
    def checkpointed_segment_1_2(v0):
        v1 = keras.random.dropout(v0, 0.1, seed=seeds)
        return v1
    v1 = scoped(checkpointed_segment_1_2, mode='full')(v0)
    def checkpointed_segment_2_3(v1):
        v2 = rows(m2, v1)
        return v2
    v2 = scoped(checkpointed_segment_2_3, mode='full')(v1)
    return (v2,)


def run(model):
    global m2
    keras.utils.set_random_seed(2), seeds.state.assign([0, 2])
    m2 = built(keras.layers.GRU(6, return_sequences=True), 1, 2, 6)
    set_mode(m2, True)
    w2 = parameters_of(m2)
    keras.utils.set_random_seed(0), seeds.state.assign([0, 0])

    def objective(x, w2):
        outputs = model(x, w2)
        y = outputs[0]
        return keras.ops.mean(keras.losses.sparse_categorical_crossentropy(target, keras.ops.reshape(y, [y.shape[0], -1]), from_logits=True)), outputs

    loss, outputs, gradients = of_torch(objective, [x, w2], [0, 1])
    results = {"loss": loss}
    results |= {f"output {i}": y for i, y in enumerate(outputs)}
    results["gradient of x"] = gradients[0]
    results["gradient of w2"] = gradients[1]
    results["state of m2"] = state_of(m2)
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
