# absent-gradients: Gradients are absent (None, not zero) exactly where they are in the plain run, and where the forecast says so.
# at: step 1, gradient of parameter 6 (layer 7 custom all)
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
weight3 = tf.Variable(np.array([-0.1, 0.6, 0.1, -0.5, 0.4, 1.3, 0.9, -0.7, -1.3], np.float32), trainable=not False)
bias3 = tf.Variable(np.array([-0.6, 0.0, -2.3, -0.2, -1.2, -0.7, -0.5, -0.3, 0.4], np.float32), trainable=not False)
weight4 = tf.Variable(np.random.default_rng(63).standard_normal((9, 9)).astype(np.float32), trainable=not False)
bias4 = tf.Variable(np.array([1.0, -0.1, 1.4, -0.7, 0.4, 0.9, 0.1, -0.7, -0.9], np.float32), trainable=not False)
weight6 = tf.Variable(np.random.default_rng(37).standard_normal((9, 18)).astype(np.float32), trainable=not False)


def plain(x, w1, weight3, bias3, weight4, bias4, weight6, w7):
    v0 = tf.nn.relu(x)
    v1 = m1.function(v0)
    v2 = tf.nn.relu(v1)
    v3 = tf.nn.batch_normalization(v2, *tf.nn.moments(v2, [-1], keepdims=True), bias3, weight3, 1e-5)
    v4 = v3 @ tf.transpose(weight4) + bias4
    v5 = tf.concat([v4, x], 1)
    v6 = v5 @ tf.transpose(weight6)
    v7 = m7.function(v6)
    v8 = tf.nn.relu(v7)
    return (v8,)


def checkpointed(x, w1, weight3, bias3, weight4, bias4, weight6, w7):
    def checkpointed_segment_0_5(x):
        v0 = tf.nn.relu(x)
        v1 = m1.function(v0)
        v2 = tf.nn.relu(v1)
        v3 = tf.nn.batch_normalization(v2, *tf.nn.moments(v2, [-1], keepdims=True), bias3, weight3, 1e-5)
        v4 = v3 @ tf.transpose(weight4) + bias4
        return x, v4
    x, v4 = tf.recompute_grad(checkpointed_segment_0_5)(x)
    def checkpointed_segment_5_6(v4, x):
        v5 = tf.concat([v4, x], 1)
        return v5
    v5 = tf.recompute_grad(checkpointed_segment_5_6)(v4, x)
    def checkpointed_segment_6_7(v5):
        v6 = v5 @ tf.transpose(weight6)
        return v6
    v6 = tf.recompute_grad(checkpointed_segment_6_7)(v5)
    def checkpointed_segment_7_8(v6):
        v7 = m7.function(v6)
        return v7
    v7 = tf.recompute_grad(checkpointed_segment_7_8)(v6)
    def checkpointed_segment_8_9(v7):
        v8 = tf.nn.relu(v7)
        return v8
    v8 = tf.recompute_grad(checkpointed_segment_8_9)(v7)
    return (v8,)


def run(model):
    global m1
    tf.random.set_seed(1), np.random.seed(1), tf.random.get_global_generator().reset_from_seed(1)
    m1 = Owner(9)
    set_mode(m1, False)
    global m7
    tf.random.set_seed(7), np.random.seed(7), tf.random.get_global_generator().reset_from_seed(7)
    m7 = Owner(9)
    set_mode(m7, False)
    w1 = parameters_of(m1)
    w7 = parameters_of(m7)
    tf.random.set_seed(0), np.random.seed(0), tf.random.get_global_generator().reset_from_seed(0)

    def objective(x, w1, weight3, bias3, weight4, bias4, weight6, w7):
        outputs = model(x, w1, weight3, bias3, weight4, bias4, weight6, w7)
        y = outputs[0]
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=target, logits=tf.reshape(y, [y.shape[0], -1]))), outputs

    loss, outputs, gradients = differentiate(objective, [x, w1, weight3, bias3, weight4, bias4, weight6, w7], [2, 3, 4, 5, 6, 7])
    loss, outputs, gradients = differentiate(objective, [x, w1, weight3, bias3, weight4, bias4, weight6, w7], [2, 3, 4, 5, 6, 7])
    results = {"loss": loss}
    results |= {f"output {i}": y for i, y in enumerate(outputs)}
    results["gradient of weight3"] = gradients[0]
    results["gradient of bias3"] = gradients[1]
    results["gradient of weight4"] = gradients[2]
    results["gradient of bias4"] = gradients[3]
    results["gradient of weight6"] = gradients[4]
    results["gradient of w7"] = gradients[5]
    results["state of m1"] = state_of(m1)
    results["state of m7"] = state_of(m7)
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
