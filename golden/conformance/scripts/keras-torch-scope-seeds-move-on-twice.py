# dropout-masks: Every recomputation of a random layer draws what its forward drew, and every forward what the plain run drew.
# at: step 1, microbatch 0, layer 2 (dropout), forward
# expected: 27 elements from offset 0, hash 0x6f2efde50c5c6227
# got: 27 elements from offset 0, hash 0x81376f1c56796aae
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
target = keras.ops.convert_to_tensor(np.array([[0.6614676713943481, -0.051845669746398926, 0.4240204095840454, -0.49245840311050415, -0.25203120708465576, -0.9759384989738464, -0.7904350757598877, 0.37532877922058105, -0.18690359592437744, -0.02856433391571045, 0.6690258979797363, 0.22416818141937256, 0.758992075920105, -0.877494215965271, -0.7161471843719482, 0.7214744091033936, 0.7202566862106323, -0.11001485586166382, -0.1769002079963684, -0.19132614135742188, 0.6024984121322632, -0.48414748907089233, 0.05451095104217529, -0.2320273369550705, -0.4756060242652893, 0.205275297164917, 0.8095223903656006, 0.030194759368896484, 0.8269217014312744, -0.4070965051651001, -0.09002376347780228, -0.9489270448684692, -0.1152152419090271, 0.4386228621006012, -0.2007291316986084, -0.14548742771148682, 0.06460702419281006, 0.35096991062164307, -0.10650169849395752, 0.4461320638656616, 0.07164180278778076, 0.3041198253631592, -0.6416664719581604, 0.14963220059871674, 0.623748779296875, -0.4527773857116699, 0.609282374382019, -0.970531165599823, 0.2126837968826294, 0.5392938852310181, 0.03152203559875488, -0.48376983404159546, -0.11989474296569824, 0.6877174377441406, 0.12028753757476807, -0.604810357093811, -0.8107795715332031, -0.5604796409606934, 0.8928235769271851, 0.3260384500026703, -0.3522357940673828, -0.43038564920425415, -0.5470848083496094, -0.040946900844573975]], np.float32))
weight3 = keras.Variable(np.random.default_rng(63).standard_normal((4, 3, 2, 2)).astype(np.float32), trainable=not False)


def plain(x, weight3):
    v0 = keras.ops.relu(x)
    v1 = v0 + x
    v2 = keras.random.dropout(v1, 0.5, seed=seeds)
    v3 = keras.ops.transpose(keras.ops.conv(keras.ops.transpose(keras.ops.pad(v2, [[0, 0], [0, 0], [1] * 2, [1] * 2]), [0, 2, 3, 1]), keras.ops.transpose(weight3, [2, 3, 1, 0]), 1, 'valid', 'channels_last'), [0, 3, 1, 2])
    v4 = keras.ops.tanh(v3)
    v5 = keras.ops.relu(v4)
    return (v5,)


def checkpointed(x, weight3):
    def checkpointed_segment_0_2(x):
        v0 = keras.ops.relu(x)
        v1 = v0 + x
        return v1
    v1 = scoped(checkpointed_segment_0_2, mode='full')(x)
    def checkpointed_segment_2_4(v1):
        v2 = keras.random.dropout(v1, 0.5, seed=seeds)
        v3 = keras.ops.transpose(keras.ops.conv(keras.ops.transpose(keras.ops.pad(v2, [[0, 0], [0, 0], [1] * 2, [1] * 2]), [0, 2, 3, 1]), keras.ops.transpose(weight3, [2, 3, 1, 0]), 1, 'valid', 'channels_last'), [0, 3, 1, 2])
        return v3
    v3 = scoped(checkpointed_segment_2_4, mode='full')(v1)
    v4 = keras.ops.tanh(v3)
    v5 = keras.ops.relu(v4)
    return (v5,)


def run(model):
    keras.utils.set_random_seed(0), seeds.state.assign([0, 0])

    def objective(x, weight3):
        outputs = model(x, weight3)
        y = outputs[0]
        return keras.ops.mean((keras.ops.reshape(y, target.shape) - target) ** 2), outputs

    loss, outputs, gradients = of_torch(objective, [x, weight3], [1])
    results = {"loss": loss}
    results |= {f"output {i}": y for i, y in enumerate(outputs)}
    results["gradient of weight3"] = gradients[0]
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
