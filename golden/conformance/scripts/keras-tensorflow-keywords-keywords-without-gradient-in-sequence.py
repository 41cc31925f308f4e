# absent-gradients: Gradients are absent (None, not zero) exactly where they are in the plain run, and where the forecast says so.
# at: step 0, gradient of parameter 0 (layer 1 conv2d weight)
# expected: present (forecast: present)
# got: absent
# keras 3.15.1 on tensorflow; run: python this_file.py
import sys

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


x = keras.ops.convert_to_tensor(np.random.default_rng(85).standard_normal((2, 4, 5, 5)).astype(np.float32))
target = keras.ops.convert_to_tensor(np.array([43, 29], np.int32))
weight1 = keras.Variable(np.random.default_rng(63).standard_normal((4, 4, 2, 2)).astype(np.float32), trainable=not False)
bias1 = keras.Variable(np.array([-0.1, 0.6, 0.1, -0.5], np.float32), trainable=not False)
weight2 = keras.Variable(np.random.default_rng(64).standard_normal((4, 4, 2, 2)).astype(np.float32), trainable=not False)


def plain(x, weight1, bias1, weight2):
    v0 = x + 0.1 * keras.random.normal(x.shape, seed=seeds)
    v1 = keras.ops.transpose(keras.ops.conv(keras.ops.transpose(keras.ops.pad(v0, [[0, 0], [0, 0], [1] * 2, [1] * 2]), [0, 2, 3, 1]), keras.ops.transpose(weight1, [2, 3, 1, 0]), 2, 'valid', 'channels_last'), [0, 3, 1, 2]) + keras.ops.reshape(bias1, [1, -1, 1, 1])
    v2 = keras.ops.transpose(keras.ops.conv(keras.ops.transpose(keras.ops.pad(v1, [[0, 0], [0, 0], [1] * 2, [1] * 2]), [0, 2, 3, 1]), keras.ops.transpose(weight2, [2, 3, 1, 0]), 1, 'valid', 'channels_last'), [0, 3, 1, 2])
    v3, v3_1 = (v2, v2)
    v4 = keras.ops.silu(v3)
    return (v4, v3_1,)


def checkpointed(x, weight1, bias1, weight2):
    def checkpointed_segment_0_1(x):
        v0 = x + 0.1 * keras.random.normal(x.shape, seed=seeds)
        return v0
    v0 = keras.remat(checkpointed_segment_0_1)(x=x)
    def checkpointed_segment_1_2(v0):
        v1 = keras.ops.transpose(keras.ops.conv(keras.ops.transpose(keras.ops.pad(v0, [[0, 0], [0, 0], [1] * 2, [1] * 2]), [0, 2, 3, 1]), keras.ops.transpose(weight1, [2, 3, 1, 0]), 2, 'valid', 'channels_last'), [0, 3, 1, 2]) + keras.ops.reshape(bias1, [1, -1, 1, 1])
        return v1
    v1 = keras.remat(checkpointed_segment_1_2)(v0=v0)
    def checkpointed_segment_2_3(v1):
        v2 = keras.ops.transpose(keras.ops.conv(keras.ops.transpose(keras.ops.pad(v1, [[0, 0], [0, 0], [1] * 2, [1] * 2]), [0, 2, 3, 1]), keras.ops.transpose(weight2, [2, 3, 1, 0]), 1, 'valid', 'channels_last'), [0, 3, 1, 2])
        return v2
    v2 = keras.remat(checkpointed_segment_2_3)(v1=v1)
    def checkpointed_segment_3_4(v2):
        v3, v3_1 = (v2, v2)
        return v3, v3_1
    v3, v3_1 = keras.remat(checkpointed_segment_3_4)(v2=v2)
    v4 = keras.ops.silu(v3)
    return (v4, v3_1,)


def run(model):
    keras.utils.set_random_seed(0), seeds.state.assign([0, 0])

    def objective(x, weight1, bias1, weight2):
        outputs = model(x, weight1, bias1, weight2)
        y = outputs[0]
        return keras.ops.mean(keras.losses.sparse_categorical_crossentropy(target, keras.ops.reshape(y, [y.shape[0], -1]), from_logits=True)), outputs

    loss, outputs, gradients = of_tensorflow(objective, [x, weight1, bias1, weight2], [1, 2, 3])
    results = {"loss": loss}
    results |= {f"output {i}": y for i, y in enumerate(outputs)}
    results["gradient of weight1"] = gradients[0]
    results["gradient of bias1"] = gradients[1]
    results["gradient of weight2"] = gradients[2]
    results["random state"] = seeds.state
    return {name: numbers(value) for name, value in results.items()}


def numbers(value):
    if isinstance(value, (list, tuple)):
        return np.concatenate([np.ravel(part) for part in value] or [[]])
    return np.array(value)


plain_results, results = run(plain), run(checkpointed)
different = []
for name, expected in plain_results.items():
    got = results[name]
    print(f"{name}\n  plain         {expected}\n  checkpointed  {got}")
    if not np.array_equal(expected, got):
        different.append(name)
print("DIFFERENT: " + ", ".join(different) if different else "same")
sys.exit(1 if different else 0)
