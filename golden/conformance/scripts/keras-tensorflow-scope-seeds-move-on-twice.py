# dropout-masks: Every recomputation of a random layer draws what its forward drew, and every forward what the plain run drew.
# at: step 0, microbatch 0, layer 0 (gaussian_noise), execution 1
# expected: 12 elements from offset 0, hash 0x89666ab8e881c622
# got: 12 elements from offset 0, hash 0x3575fd27d8d2fcbc
# keras 3.15.1 on tensorflow; run: python this_file.py
import sys

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


def of_tensorflow(objective, arguments, trained):
    import tensorflow as tf

    sources = value_of([arguments[i] for i in trained])
    # Without the variables of frozen layers.
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(sources)
        loss, outputs = in_layer(objective, arguments)
    gradients = tape.gradient(loss, sources)
    return loss, outputs, [whole(g, s) for g, s in zip(gradients, sources, strict=True)]


x = keras.ops.convert_to_tensor(np.array([[0.1, -0.1, 0.6, 0.1, -0.5, 0.4], [1.3, 0.9, -0.7, -1.3, -0.6, 0.0]], np.float32))
target = keras.ops.convert_to_tensor(np.array([[0.03035557270050049, 0.38134777545928955, -0.8216577172279358, -0.9795421957969666, -0.7917405366897583, -0.6232696175575256], [-0.8644413948059082, 0.3562610149383545, -0.31894999742507935, 0.054425835609436035, 0.41467738151550293, -0.6889232397079468]], np.float32))


def plain(x):
    v0 = x + 0.1 * keras.random.normal(x.shape, seed=seeds)
    return (v0,)


def checkpointed(x):
    def checkpointed_segment_0_1(x):
        v0 = x + 0.1 * keras.random.normal(x.shape, seed=seeds)
        return v0
    v0 = scoped(checkpointed_segment_0_1, mode='full')(x)
    return (v0,)


def run(model):
    keras.utils.set_random_seed(0), seeds.state.assign([0, 0])

    def objective(x):
        outputs = model(x)
        y = outputs[0]
        return keras.ops.mean((keras.ops.reshape(y, target.shape) - target) ** 2), outputs

    loss, outputs, gradients = of_tensorflow(objective, [x], [0])
    results = {"loss": loss}
    results |= {f"output {i}": y for i, y in enumerate(outputs)}
    results["gradient of x"] = gradients[0]
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
