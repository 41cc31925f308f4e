# outputs: Every forward returns the same bits as the plain run.
# at: step 1, microbatch 0, output 0, element 0 (first of 7 that differ, of 7)
# expected: 0.103591837 (0x3dd427f5)
# got: 0.103474654 (0x3dd3ea85)
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


def of_tensorflow(objective, arguments, trained):
    import tensorflow as tf

    sources = value_of([arguments[i] for i in trained])
    # Without the variables of frozen layers.
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        tape.watch(sources)
        loss, outputs = in_layer(objective, arguments)
    gradients = tape.gradient(loss, sources)
    return loss, outputs, [whole(g, s) for g, s in zip(gradients, sources, strict=True)]


x = keras.ops.convert_to_tensor(np.array([[0.1, -0.1, 0.6, 0.1, -0.5, 0.4, 1.3]], np.float32))
target = keras.ops.convert_to_tensor(np.array([[-0.23147785663604736, -0.32162994146347046, 0.14957213401794434, 0.46160662174224854, 0.10645580291748047, 0.6527481079101562, -0.3110402226448059]], np.float32))
weight3 = keras.Variable(np.random.default_rng(97).standard_normal((7, 4)).astype(np.float32), trainable=not False)
bias3 = keras.Variable(np.array([-0.7, -1.3, -0.6, 0.0, -2.3, -0.2, -1.2], np.float32), trainable=not False)
weight4 = keras.Variable(np.random.default_rng(72).standard_normal((7, 7)).astype(np.float32), trainable=not False)
bias4 = keras.Variable(np.array([-0.7, -0.5, -0.3, 0.4, 1.0, -0.1, 1.4], np.float32), trainable=not False)


def plain(x, w2, weight3, bias3, weight4, bias4):
    v0, v0_1 = keras.ops.split(x, [4], 1)
    v1 = keras.ops.softmax(v0, -1)
    v2 = m2(v1, training=m2.mode)
    v3 = v2 @ keras.ops.transpose(weight3) + bias3
    v4 = v3 @ keras.ops.transpose(weight4) + bias4
    return (v4, v0_1,)


def checkpointed(x, w2, weight3, bias3, weight4, bias4):
    def checkpointed_segment_0_4(x):
        def checkpointed_segment_0_1(x):
            v0, v0_1 = keras.ops.split(x, [4], 1)
            return v0, v0_1
        v0, v0_1 = scoped(checkpointed_segment_0_1, mode='full')(x)
        def checkpointed_segment_1_3(v0, v0_1):
            v1 = keras.ops.softmax(v0, -1)
            v2 = m2(v1, training=m2.mode)
            return v0_1, v2
        v0_1, v2 = scoped(checkpointed_segment_1_3, mode='full')(v0, v0_1)
        def checkpointed_segment_3_4(v2, v0_1):
            v3 = v2 @ keras.ops.transpose(weight3) + bias3
            return v0_1, v3
        v0_1, v3 = scoped(checkpointed_segment_3_4, mode='full')(v2, v0_1)
        return v3, v0_1
    v3, v0_1 = scoped(checkpointed_segment_0_4, mode='full')(x)
    def checkpointed_segment_4_5_(v3, v0_1):
        def checkpointed_segment_4_5(v3, v0_1):
            v4 = v3 @ keras.ops.transpose(weight4) + bias4
            return v0_1, v4
        v0_1, v4 = scoped(checkpointed_segment_4_5, mode='full')(v3, v0_1)
        return v0_1, v4
    v0_1, v4 = scoped(checkpointed_segment_4_5_, mode='full')(v3, v0_1)
    return (v4, v0_1,)


def run(model):
    global m2
    keras.utils.set_random_seed(2), seeds.state.assign([0, 2])
    m2 = built(keras.layers.SpectralNormalization(keras.layers.Dense(4)), 2, 4)
    set_mode(m2, True)
    w2 = parameters_of(m2)
    keras.utils.set_random_seed(0), seeds.state.assign([0, 0])

    def objective(x, w2, weight3, bias3, weight4, bias4):
        outputs = model(x, w2, weight3, bias3, weight4, bias4)
        y = outputs[0]
        return keras.ops.mean((keras.ops.reshape(y, target.shape) - target) ** 2), outputs

    loss, outputs, gradients = of_tensorflow(objective, [x, w2, weight3, bias3, weight4, bias4], [1, 2, 3, 4, 5])
    loss, outputs, gradients = of_tensorflow(objective, [x, w2, weight3, bias3, weight4, bias4], [1, 2, 3, 4, 5])
    results = {"loss": loss}
    results |= {f"output {i}": y for i, y in enumerate(outputs)}
    results["gradient of w2"] = gradients[0]
    results["gradient of weight3"] = gradients[1]
    results["gradient of bias3"] = gradients[2]
    results["gradient of weight4"] = gradients[3]
    results["gradient of bias4"] = gradients[4]
    results["state of m2"] = state_of(m2)
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
