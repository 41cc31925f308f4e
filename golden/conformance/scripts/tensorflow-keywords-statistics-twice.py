# reevaluation: On an input that neither has seen, the model trained with checkpointing gives the same bits as the one trained without.
# at: step 1, reevaluation, element 0 (first of 2 that differ, of 2)
# expected: 0.31726113 (0x3ea2700d)
# got: 1.86216462 (0x3fee5b69)
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


def counted(m, x):
    if m.train:
        m.count.assign_add(1.0)
    return x * m.count


x = tf.constant(np.random.default_rng(85).standard_normal((2, 1, 5, 5)).astype(np.float32))
target = tf.constant(np.array([[-0.20675992965698242], [-0.22045010328292847]], np.float32))
weight2 = tf.constant(np.array([[[[-0.1, 0.6], [0.1, -0.5]]]], np.float32))
bias2 = tf.constant(np.array([0.4], np.float32))


def plain(x, weight2, bias2):
    v0 = tf.nn.relu(x)
    v1 = tf.nn.softmax(v0, -1)
    v2 = tf.transpose(tf.nn.conv2d(tf.transpose(v1, [0, 2, 3, 1]), tf.transpose(weight2, [2, 3, 1, 0]), 2, [[0, 0], [0, 0], [0, 0], [0, 0]]), [0, 3, 1, 2]) + tf.reshape(bias2, [1, -1, 1, 1])
    v3 = tf.nn.relu(v2)
    v4 = tf.reshape(v3, [v3.shape[0], -1])
    v5, v5_1 = tf.split(v4, [1, v4.shape[1] - 1], 1)
    v6 = counted(m6, v5)
    return (v6, v5_1,)


def checkpointed_segment_0_1(x):
    v0 = tf.nn.relu(x)
    return v0


def checkpointed_segment_1_2(v0):
    v1 = tf.nn.softmax(v0, -1)
    return v1


def checkpointed_segment_2_3(v1, weight2, bias2):
    v2 = tf.transpose(tf.nn.conv2d(tf.transpose(v1, [0, 2, 3, 1]), tf.transpose(weight2, [2, 3, 1, 0]), 2, [[0, 0], [0, 0], [0, 0], [0, 0]]), [0, 3, 1, 2]) + tf.reshape(bias2, [1, -1, 1, 1])
    return v2


def checkpointed_segment_3_4(v2):
    v3 = tf.nn.relu(v2)
    return v3


def checkpointed_segment_4_5(v3):
    v4 = tf.reshape(v3, [v3.shape[0], -1])
    return v4


def checkpointed_segment_5_6(v4):
    v5, v5_1 = tf.split(v4, [1, v4.shape[1] - 1], 1)
    return v5, v5_1


def checkpointed_segment_6_7(v5, v5_1):
    v6 = counted(m6, v5)
    return v5_1, v6


def checkpointed(x, weight2, bias2):
    v0 = tf.recompute_grad(checkpointed_segment_0_1)(x=x)
    v1 = tf.recompute_grad(checkpointed_segment_1_2)(v0=v0)
    v2 = tf.recompute_grad(checkpointed_segment_2_3)(v1=v1, weight2=weight2, bias2=bias2)
    v3 = tf.recompute_grad(checkpointed_segment_3_4)(v2=v2)
    v4 = tf.recompute_grad(checkpointed_segment_4_5)(v3=v3)
    v5, v5_1 = tf.recompute_grad(checkpointed_segment_5_6)(v4=v4)
    v5_1, v6 = tf.recompute_grad(checkpointed_segment_6_7)(v5=v5, v5_1=v5_1)
    return (v6, v5_1,)


def run(model):
    global m6
    tf.random.set_seed(6), np.random.seed(6), tf.random.get_global_generator().reset_from_seed(6)
    m6 = Owner(1)
    set_mode(m6, True)
    tf.random.set_seed(0), np.random.seed(0), tf.random.get_global_generator().reset_from_seed(0)

    def objective(x, weight2, bias2):
        outputs = model(x, weight2, bias2)
        y = outputs[0]
        return tf.reduce_mean((tf.reshape(y, target.shape) - target) ** 2), outputs

    loss, outputs, gradients = differentiate(objective, [x, weight2, bias2], [0, 1, 2])
    results = {"loss": loss}
    results |= {f"output {i}": y for i, y in enumerate(outputs)}
    results["gradient of x"] = gradients[0]
    results["gradient of weight2"] = gradients[1]
    results["gradient of bias2"] = gradients[2]
    results["state of m6"] = state_of(m6)
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
