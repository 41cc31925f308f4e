# absent-gradients: Gradients are absent (None, not zero) exactly where they are in the plain run, and where the forecast says so.
# at: step 0, gradient of parameter 1 (layer 3 layer_norm weight)
# expected: present (forecast: present)
# got: absent
# tensorflow 2.21.0; run: python this_file.py
import sys

import tensorflow as tf
import numpy as np


def gradients_of(tape, loss, sources):
    """None where there is none, also for modules, whose sources are lists."""

    def of_module(found, source):
        if all(g is None for g in found):
            return None
        pairs = zip(found, source, strict=True)
        return [tf.zeros_like(v) if g is None else tf.convert_to_tensor(g) for g, v in pairs]

    pairs = zip(tape.gradient(loss, sources), sources, strict=True)
    return [of_module(g, s) if isinstance(s, list) else g for g, s in pairs]


def differentiate(objective, arguments, trained, backwards: int = 1):
    sources = [arguments[i] for i in trained]
    # Without the variables of frozen modules, which count as trainable.
    with tf.GradientTape(persistent=backwards > 1, watch_accessed_variables=False) as tape:
        tape.watch(sources)
        loss, outputs = objective(*arguments)
    found = [gradients_of(tape, loss, sources) for _ in range(backwards)]
    return loss, outputs, found[-1]


def parameters_of(m):
    return list(m.trainable_variables)


def state_of(m):
    return [v for v in m.variables if not v.trainable]


def set_mode(m, train):
    m.train = train


class Owner(tf.Module):
    """Of a variable, a counter and a generator."""

    def __init__(self, features):
        super().__init__()
        self.table = tf.Variable(tf.random.normal([3, features]))
        self.count = tf.Variable(0.0, trainable=False)
        self.generator = tf.random.Generator.from_seed(7)
        self.function = tf.function(lambda x: tf.tanh(x * self.table[0]))


x = tf.constant(np.random.default_rng(85).standard_normal((5, 9)).astype(np.float32))
target = tf.constant(np.array([4, 3, 5, 5, 4], np.int32))
weight3 = tf.constant(np.array([-0.1, 0.6, 0.1, -0.5, 0.4, 1.3, 0.9, -0.7, -1.3], np.float32))
bias3 = tf.constant(np.array([-0.6, 0.0, -2.3, -0.2, -1.2, -0.7, -0.5, -0.3, 0.4], np.float32))
weight4 = tf.constant(np.random.default_rng(63).standard_normal((9, 9)).astype(np.float32))
bias4 = tf.constant(np.array([1.0, -0.1, 1.4, -0.7, 0.4, 0.9, 0.1, -0.7, -0.9], np.float32))


def plain(x, w1, weight3, bias3, weight4, bias4):
    v0 = tf.nn.relu(x)
    v1 = m1.function(v0)
    v2 = tf.nn.relu(v1)
    v3 = tf.nn.batch_normalization(v2, *tf.nn.moments(v2, [-1], keepdims=True), bias3, weight3, 1e-5)
    v4 = v3 @ tf.transpose(weight4) + bias4
    return (v4,)


def checkpointed(x, w1, weight3, bias3, weight4, bias4):
    def checkpointed_segment_0_5(x):
        v0 = tf.nn.relu(x)
        v1 = m1.function(v0)
        v2 = tf.nn.relu(v1)
        v3 = tf.nn.batch_normalization(v2, *tf.nn.moments(v2, [-1], keepdims=True), bias3, weight3, 1e-5)
        v4 = v3 @ tf.transpose(weight4) + bias4
        return v4
    v4 = tf.recompute_grad(checkpointed_segment_0_5)(x)
    return (v4,)


def run(model):
    global m1
    tf.random.set_seed(1), np.random.seed(1), tf.random.get_global_generator().reset_from_seed(1)
    m1 = Owner(9)
    set_mode(m1, False)
    w1 = parameters_of(m1)
    tf.random.set_seed(0), np.random.seed(0), tf.random.get_global_generator().reset_from_seed(0)

    def objective(x, w1, weight3, bias3, weight4, bias4):
        outputs = model(x, w1, weight3, bias3, weight4, bias4)
        y = outputs[0]
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=target, logits=tf.reshape(y, [y.shape[0], -1]))), outputs

    loss, outputs, gradients = differentiate(objective, [x, w1, weight3, bias3, weight4, bias4], [2, 3, 4, 5])
    results = {"loss": loss}
    results |= {f"output {i}": y for i, y in enumerate(outputs)}
    results["gradient of weight3"] = gradients[0]
    results["gradient of bias3"] = gradients[1]
    results["gradient of weight4"] = gradients[2]
    results["gradient of bias4"] = gradients[3]
    results["state of m1"] = state_of(m1)
    results["random state"] = [tf.random.uniform([]), tf.random.get_global_generator().state]
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
