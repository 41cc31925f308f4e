# executions: Every layer runs as often as the forecast says: once for the forward and once for each recomputation that reaches it. It computes each time, unless a policy kept its results.
# at: step 0, microbatch 0, layer 0 (relu), checkpointed run
# expected: 2
# got: 3
# keras 3.15.1 on tensorflow; run: python this_file.py
import sys
from collections import Counter

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


x = keras.ops.convert_to_tensor(np.random.default_rng(85).standard_normal((5, 4, 4, 6)).astype(np.float32))
target = keras.ops.convert_to_tensor(np.array([[-0.6476904153823853, 0.49962687492370605, -0.47862809896469116, -0.659649670124054, -0.4761776328086853, 0.5937318801879883], [0.6500978469848633, -0.15164028108119965, 0.42554211616516113, -0.2927982211112976, 0.6044234037399292, 0.7326533794403076], [-0.6587578654289246, -0.020241975784301758, -0.317960262298584, 0.6618164777755737, -0.025708556175231934, -0.26478034257888794], [0.5069433450698853, 0.390789270401001, -0.9169963598251343, 0.6524225473403931, -0.6922190189361572, -0.41972553730010986], [0.4829385280609131, -0.27009302377700806, -0.8425396680831909, 0.6442055702209473, -0.007428884040564299, 0.9844233989715576]], np.float32))
weight1 = keras.Variable(np.random.default_rng(63).standard_normal((1, 4, 3, 3)).astype(np.float32), trainable=not False)


runs = Counter()


def enter(layer):
    runs[layer] += 1


def plain(x, weight1):
    enter(0)
    v0 = keras.ops.relu(x)
    enter(1)
    v1 = keras.ops.transpose(keras.ops.conv(keras.ops.transpose(keras.ops.pad(v0, [[0, 0], [0, 0], [1] * 2, [1] * 2]), [0, 2, 3, 1]), keras.ops.transpose(weight1, [2, 3, 1, 0]), 2, 'valid', 'channels_last'), [0, 3, 1, 2])
    return (v1,)


def checkpointed(x, weight1):
    def checkpointed_segment_0_2(x):
        def checkpointed_segment_0_1(x):
            enter(0)
            v0 = keras.ops.relu(x)
            return v0
        v0 = keras.remat(checkpointed_segment_0_1)(x)
        enter(1)
        v1 = keras.ops.transpose(keras.ops.conv(keras.ops.transpose(keras.ops.pad(v0, [[0, 0], [0, 0], [1] * 2, [1] * 2]), [0, 2, 3, 1]), keras.ops.transpose(weight1, [2, 3, 1, 0]), 2, 'valid', 'channels_last'), [0, 3, 1, 2])
        return v1
    v1 = keras.remat(checkpointed_segment_0_2)(x)
    return (v1,)


def run(model):
    runs.clear()
    keras.utils.set_random_seed(0), seeds.state.assign([0, 0])

    def objective(x, weight1):
        outputs = model(x, weight1)
        y = outputs[0]
        return keras.ops.mean((keras.ops.reshape(y, target.shape) - target) ** 2), outputs

    loss, outputs, gradients = of_tensorflow(objective, [x, weight1], [1])
    results = {"loss": loss}
    results |= {f"output {i}": y for i, y in enumerate(outputs)}
    results["gradient of weight1"] = gradients[0]
    results["random state"] = seeds.state
    results |= {f"runs of layer {i}": n for i, n in runs.items()}
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
