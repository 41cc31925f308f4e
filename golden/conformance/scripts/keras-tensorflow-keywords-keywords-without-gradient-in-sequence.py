# absent-gradients: Gradients are absent (None, not zero) exactly where they are in the plain run, and where the forecast says so.
# at: step 0, microbatch 0, gradient of the model input
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


x = keras.ops.convert_to_tensor(np.random.default_rng(85).standard_normal((1, 3, 3, 3)).astype(np.float32))
target = keras.ops.convert_to_tensor(np.array([[0.6614676713943481, -0.051845669746398926, 0.4240204095840454, -0.49245840311050415, -0.25203120708465576, -0.9759384989738464, -0.7904350757598877, 0.37532877922058105, -0.18690359592437744, -0.02856433391571045, 0.6690258979797363, 0.22416818141937256, 0.758992075920105, -0.877494215965271, -0.7161471843719482, 0.7214744091033936, 0.7202566862106323, -0.11001485586166382, -0.1769002079963684, -0.19132614135742188, 0.6024984121322632, -0.48414748907089233, 0.05451095104217529, -0.2320273369550705, -0.4756060242652893, 0.205275297164917, 0.8095223903656006]], np.float32))


def plain(x):
    v0 = keras.ops.relu(x)
    v1 = keras.ops.reshape(v0, [v0.shape[0], -1])
    return (v1,)


def checkpointed(x):
    def checkpointed_segment_0_1(x):
        v0 = keras.ops.relu(x)
        return v0
    v0 = keras.remat(checkpointed_segment_0_1)(x=x)
    v1 = keras.ops.reshape(v0, [v0.shape[0], -1])
    return (v1,)


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


plain_results, results = run(plain), run(checkpointed)
different = []
for name, expected in plain_results.items():
    got = results[name]
    print(f"{name}\n  plain         {expected}\n  checkpointed  {got}")
    if not np.array_equal(expected, got):
        different.append(name)
print("DIFFERENT: " + ", ".join(different) if different else "same")
sys.exit(1 if different else 0)
