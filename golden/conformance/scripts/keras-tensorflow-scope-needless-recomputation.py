# executions: Every layer runs as often as the forecast says: once for the forward and once for each recomputation that reaches it. It computes each time, unless a policy kept its results.
# at: step 0, microbatch 0, layer 2 (silu), checkpointed run
# expected: 3
# got: 4
# keras 3.15.1 on tensorflow; run: python this_file.py
import sys
from collections import Counter

import os

os.environ["KERAS_BACKEND"] = "tensorflow"
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


def last(layer, x):
    """The layer of images, with their channels last."""
    y = layer(keras.ops.transpose(x, [0, 2, 3, 1]), training=layer.mode)
    return keras.ops.transpose(y, [0, 3, 1, 2])


def of_tensorflow(objective, arguments, trained):
    import tensorflow as tf

    sources = value_of([arguments[i] for i in trained])
    # Without the variables of frozen layers.
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(sources)
        loss, outputs = in_layer(objective, arguments)
    gradients = tape.gradient(loss, sources)
    return loss, outputs, [whole(g, s) for g, s in zip(gradients, sources, strict=True)]


x = keras.ops.convert_to_tensor(np.random.default_rng(85).standard_normal((1, 1, 7, 7)).astype(np.float32))
target = keras.ops.convert_to_tensor(np.array([27], np.int32))


runs = Counter()


def enter(layer):
    runs[layer] += 1


def plain(x, w4):
    enter(0)
    v0, v0_1 = (x, x)
    enter(1)
    v1, v1_1 = (v0, v0)
    enter(2)
    v2 = keras.ops.silu(v1)
    enter(3)
    v3 = v2 * v2
    enter(4)
    v4 = last(m4, v3)
    enter(5)
    v5 = keras.ops.relu(v4)
    return (v5, v0_1, v1_1,)


def checkpointed(x, w4):
    def checkpointed_segment_0_6(x):
        enter(0)
        v0, v0_1 = (x, x)
        enter(1)
        v1, v1_1 = (v0, v0)
        def checkpointed_segment_2_6(v1, v0_1, v1_1):
            def checkpointed_segment_2_4(v1, v0_1, v1_1):
                enter(2)
                v2 = keras.ops.silu(v1)
                enter(3)
                v3 = v2 * v2
                return v0_1, v1_1, v3
            v0_1, v1_1, v3 = scoped(checkpointed_segment_2_4, mode='full')(v1, v0_1, v1_1)
            enter(4)
            v4 = last(m4, v3)
            def checkpointed_segment_5_6(v4, v0_1, v1_1):
                enter(5)
                v5 = keras.ops.relu(v4)
                return v0_1, v1_1, v5
            v0_1, v1_1, v5 = scoped(checkpointed_segment_5_6, mode='full')(v4, v0_1, v1_1)
            return v0_1, v1_1, v5
        v0_1, v1_1, v5 = scoped(checkpointed_segment_2_6, mode='full')(v1, v0_1, v1_1)
        return v5, v0_1, v1_1
    v5, v0_1, v1_1 = scoped(checkpointed_segment_0_6, mode='full')(x)
    return (v5, v0_1, v1_1,)


def run(model):
    global m4
    keras.utils.set_random_seed(4), seeds.state.assign([0, 4])
    m4 = built(keras.layers.GroupNormalization(1), 1, 7, 7, 1)
    set_mode(m4, True)
    w4 = parameters_of(m4)
    runs.clear()
    keras.utils.set_random_seed(0), seeds.state.assign([0, 0])

    def objective(x, w4):
        outputs = model(x, w4)
        y = outputs[0]
        return keras.ops.mean(keras.losses.sparse_categorical_crossentropy(target, keras.ops.reshape(y, [y.shape[0], -1]), from_logits=True)), outputs

    loss, outputs, gradients = of_tensorflow(objective, [x, w4], [1])
    results = {"loss": loss}
    results |= {f"output {i}": y for i, y in enumerate(outputs)}
    results["gradient of w4"] = gradients[0]
    results["state of m4"] = state_of(m4)
    results["random state"] = seeds.state
    results |= {f"runs of layer {i}": n for i, n in runs.items()}
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
