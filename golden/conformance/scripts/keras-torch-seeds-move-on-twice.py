# dropout-masks: Every recomputation of a random layer draws what its forward drew, and every forward what the plain run drew.
# at: step 1, microbatch 0, layer 4 (dropout), forward
# expected: 4 elements from offset 0, hash 0x86689d8165aaef69
# got: 4 elements from offset 0, hash 0x512391c4c8097563
# keras 3.15.1 on torch; run: python this_file.py
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


x = keras.ops.convert_to_tensor(np.random.default_rng(85).standard_normal((1, 3, 3, 3)).astype(np.float32))
target = keras.ops.convert_to_tensor(np.array([[0.6614676713943481, -0.051845669746398926, 0.4240204095840454, -0.49245840311050415, -0.25203120708465576, -0.9759384989738464, -0.7904350757598877, 0.37532877922058105, -0.18690359592437744, -0.02856433391571045, 0.6690258979797363, 0.22416818141937256, 0.758992075920105, -0.877494215965271, -0.7161471843719482, 0.7214744091033936]], np.float32))
weight2 = keras.Variable(np.random.default_rng(63).standard_normal((4, 3, 3, 3)).astype(np.float32), trainable=not False)
bias2 = keras.Variable(np.array([-0.1, 0.6, 0.1, -0.5], np.float32), trainable=not False)
weight3 = keras.Variable(np.random.default_rng(64).standard_normal((4, 4, 3, 3)).astype(np.float32), trainable=not False)
bias3 = keras.Variable(np.array([1.3, 0.9, -0.7, -1.3], np.float32), trainable=not False)
weight5 = keras.Variable(np.random.default_rng(91).standard_normal((4, 4, 2, 2)).astype(np.float32), trainable=not False)


def plain(x, weight2, bias2, weight3, bias3, weight5):
    v0 = keras.ops.relu(x)
    v1 = v0 + x
    v2 = keras.ops.transpose(keras.ops.conv(keras.ops.transpose(v1, [0, 2, 3, 1]), keras.ops.transpose(weight2, [2, 3, 1, 0]), 1, 'valid', 'channels_last'), [0, 3, 1, 2]) + keras.ops.reshape(bias2, [1, -1, 1, 1])
    v3 = keras.ops.transpose(keras.ops.conv(keras.ops.transpose(keras.ops.pad(v2, [[0, 0], [0, 0], [1] * 2, [1] * 2]), [0, 2, 3, 1]), keras.ops.transpose(weight3, [2, 3, 1, 0]), 1, 'valid', 'channels_last'), [0, 3, 1, 2]) + keras.ops.reshape(bias3, [1, -1, 1, 1])
    v4 = keras.random.dropout(v3, 0.5, seed=seeds)
    v5 = keras.ops.transpose(keras.ops.conv(keras.ops.transpose(keras.ops.pad(v4, [[0, 0], [0, 0], [1] * 2, [1] * 2]), [0, 2, 3, 1]), keras.ops.transpose(weight5, [2, 3, 1, 0]), 1, 'valid', 'channels_last'), [0, 3, 1, 2])
    v6 = keras.ops.tanh(v5)
    v7 = keras.ops.relu(v6)
    v8 = keras.ops.reshape(v7, [v7.shape[0], -1])
    return (v8,)


def checkpointed(x, weight2, bias2, weight3, bias3, weight5):
    def checkpointed_segment_0_3(x):
        v0 = keras.ops.relu(x)
        v1 = v0 + x
        v2 = keras.ops.transpose(keras.ops.conv(keras.ops.transpose(v1, [0, 2, 3, 1]), keras.ops.transpose(weight2, [2, 3, 1, 0]), 1, 'valid', 'channels_last'), [0, 3, 1, 2]) + keras.ops.reshape(bias2, [1, -1, 1, 1])
        return v2
    v2 = keras.remat(checkpointed_segment_0_3)(x)
    def checkpointed_segment_3_6(v2):
        v3 = keras.ops.transpose(keras.ops.conv(keras.ops.transpose(keras.ops.pad(v2, [[0, 0], [0, 0], [1] * 2, [1] * 2]), [0, 2, 3, 1]), keras.ops.transpose(weight3, [2, 3, 1, 0]), 1, 'valid', 'channels_last'), [0, 3, 1, 2]) + keras.ops.reshape(bias3, [1, -1, 1, 1])
        v4 = keras.random.dropout(v3, 0.5, seed=seeds)
        v5 = keras.ops.transpose(keras.ops.conv(keras.ops.transpose(keras.ops.pad(v4, [[0, 0], [0, 0], [1] * 2, [1] * 2]), [0, 2, 3, 1]), keras.ops.transpose(weight5, [2, 3, 1, 0]), 1, 'valid', 'channels_last'), [0, 3, 1, 2])
        return v5
    v5 = keras.remat(checkpointed_segment_3_6)(v2)
    v6 = keras.ops.tanh(v5)
    v7 = keras.ops.relu(v6)
    v8 = keras.ops.reshape(v7, [v7.shape[0], -1])
    return (v8,)


def run(model):
    keras.utils.set_random_seed(0), seeds.state.assign([0, 0])

    def objective(x, weight2, bias2, weight3, bias3, weight5):
        outputs = model(x, weight2, bias2, weight3, bias3, weight5)
        y = outputs[0]
        return keras.ops.mean((keras.ops.reshape(y, target.shape) - target) ** 2), outputs

    loss, outputs, gradients = of_torch(objective, [x, weight2, bias2, weight3, bias3, weight5], [1, 2, 3, 4, 5])
    results = {"loss": loss}
    results |= {f"output {i}": y for i, y in enumerate(outputs)}
    results["gradient of weight2"] = gradients[0]
    results["gradient of bias2"] = gradients[1]
    results["gradient of weight3"] = gradients[2]
    results["gradient of bias3"] = gradients[3]
    results["gradient of weight5"] = gradients[4]
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
