# executions: Every layer runs as often as the forecast says: once for the forward and once for each recomputation that reaches it. It computes each time, unless a policy kept its results.
# at: step 0, microbatch 0, layer 0 (gaussian_noise), checkpointed run
# expected: 2
# got: 4
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


x = keras.ops.convert_to_tensor(np.array([[0.1, -0.1, 0.6], [0.1, -0.5, 0.4], [1.3, 0.9, -0.7], [-1.3, -0.6, 0.0]], np.float32))
target = keras.ops.convert_to_tensor(np.array([[0.033722877502441406, 0.9843412637710571, 0.2689933776855469, -0.3889923095703125, -0.9782360196113586, -0.13494133949279785, 0.7127389907836914], [0.9457885026931763, -0.5574392080307007, -0.430070161819458, -0.5451768040657043, -0.831720232963562, 0.19576287269592285, 0.1412954330444336], [-0.05661994218826294, 0.07518982887268066, 0.2969050705432892, -0.9179945588111877, -0.5629739761352539, -0.018316686153411865, -0.5043560862541199], [0.5129460096359253, -0.10624217242002487, -0.4495868980884552, -0.3843425512313843, 0.9821445941925049, -0.16712647676467896, -0.6954633593559265]], np.float32))
weight3 = keras.Variable(np.array([-2.3, -0.2, -1.2], np.float32), trainable=not False)
bias3 = keras.Variable(np.array([-0.7, -0.5, -0.3], np.float32), trainable=not False)
weight5 = keras.Variable(np.random.default_rng(8).standard_normal((7, 3)).astype(np.float32), trainable=not False)
bias5 = keras.Variable(np.array([1.0, -0.1, 1.4, -0.7, 0.4, 0.9, 0.1], np.float32), trainable=not False)
weight6 = keras.Variable(np.array([-0.7, -0.9, -0.5, 0.2, -1.0, -0.2, -0.2], np.float32), trainable=not False)
bias6 = keras.Variable(np.array([0.5, 0.2, 0.4, -0.7, -0.1, 0.8, 1.5], np.float32), trainable=not False)


runs = Counter()


def enter(layer):
    runs[layer] += 1


def plain(x, weight3, bias3, weight5, bias5, weight6, bias6):
    enter(0)
    v0 = x + 0.5 * keras.random.normal(x.shape, seed=seeds)
    enter(1)
    v1 = v0 + 1 * keras.random.normal(v0.shape, seed=seeds)
    enter(2)
    v2 = v1 + x
    enter(3)
    v3 = keras.ops.layer_normalization(v2, weight3, bias3, epsilon=1e-5)
    enter(4)
    v4 = keras.ops.silu(v3)
    enter(5)
    v5 = v4 @ keras.ops.transpose(weight5) + bias5
    enter(6)
    v6 = keras.ops.layer_normalization(v5, weight6, bias6, epsilon=1e-5)
    return (v6,)


def checkpointed(x, weight3, bias3, weight5, bias5, weight6, bias6):
    def checkpointed_segment_0_6(x):
        def checkpointed_segment_0_2_(x):
            def checkpointed_segment_0_2(x):
                enter(0)
                v0 = x + 0.5 * keras.random.normal(x.shape, seed=seeds)
                enter(1)
                v1 = v0 + 1 * keras.random.normal(v0.shape, seed=seeds)
                return x, v1
            x, v1 = scoped(checkpointed_segment_0_2, mode='full')(x)
            return x, v1
        x, v1 = scoped(checkpointed_segment_0_2_, mode='full')(x)
        def checkpointed_segment_2_6(v1, x):
            enter(2)
            v2 = v1 + x
            enter(3)
            v3 = keras.ops.layer_normalization(v2, weight3, bias3, epsilon=1e-5)
            enter(4)
            v4 = keras.ops.silu(v3)
            enter(5)
            v5 = v4 @ keras.ops.transpose(weight5) + bias5
            return v5
        v5 = scoped(checkpointed_segment_2_6, mode='full')(v1, x)
        return v5
    v5 = scoped(checkpointed_segment_0_6, mode='full')(x)
    def checkpointed_segment_6_7(v5):
        enter(6)
        v6 = keras.ops.layer_normalization(v5, weight6, bias6, epsilon=1e-5)
        return v6
    v6 = scoped(checkpointed_segment_6_7, mode='full')(v5)
    return (v6,)


def run(model):
    runs.clear()
    keras.utils.set_random_seed(0), seeds.state.assign([0, 0])

    def objective(x, weight3, bias3, weight5, bias5, weight6, bias6):
        outputs = model(x, weight3, bias3, weight5, bias5, weight6, bias6)
        y = outputs[0]
        return keras.ops.mean((keras.ops.reshape(y, target.shape) - target) ** 2), outputs

    loss, outputs, gradients = of_tensorflow(objective, [x, weight3, bias3, weight5, bias5, weight6, bias6], [1, 2, 3, 4, 5, 6])
    results = {"loss": loss}
    results |= {f"output {i}": y for i, y in enumerate(outputs)}
    results["gradient of weight3"] = gradients[0]
    results["gradient of bias3"] = gradients[1]
    results["gradient of weight5"] = gradients[2]
    results["gradient of bias5"] = gradients[3]
    results["gradient of weight6"] = gradients[4]
    results["gradient of bias6"] = gradients[5]
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
