# reevaluation: On an input that neither has seen, the model trained with checkpointing gives the same bits as the one trained without.
# at: step 2, reevaluation, element 0 (first of 8 that differ, of 8)
# expected: 1.06932926 (0x3f88dfc8)
# got: 1.50415564 (0x3fc0882c)
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


x = tf.constant(np.array([[0.1, -0.1, 0.6, 0.1], [-0.5, 0.4, 1.3, 0.9]], np.float32))
target = tf.constant(np.array([[0.96977698802948, -0.2144157886505127, -0.9020498394966125, -0.18159574270248413], [-0.549121081829071, -0.10784280300140381, -0.7090802192687988, -0.2863919734954834]], np.float32))
weight0 = tf.constant(np.array([[-0.7, -1.3, -0.6, 0.0], [-2.3, -0.2, -1.2, -0.7], [-0.5, -0.3, 0.4, 1.0], [-0.1, 1.4, -0.7, 0.4]], np.float32))
bias0 = tf.constant(np.array([0.9, 0.1, -0.7, -0.9], np.float32))


def plain(x, weight0, bias0):
    v0 = x @ tf.transpose(weight0) + bias0
    v1 = counted(m1, v0)
    return (v1,)


def checkpointed_segment_0_2(x, weight0, bias0):
    v0 = x @ tf.transpose(weight0) + bias0
    v1 = counted(m1, v0)
    return v1


def checkpointed(x, weight0, bias0):
    v1 = tf.recompute_grad(checkpointed_segment_0_2)(x=x, weight0=weight0, bias0=bias0)
    return (v1,)


def run(model):
    global m1
    tf.random.set_seed(1), np.random.seed(1), tf.random.get_global_generator().reset_from_seed(1)
    m1 = Owner(1)
    set_mode(m1, True)
    tf.random.set_seed(0), np.random.seed(0), tf.random.get_global_generator().reset_from_seed(0)

    def objective(x, weight0, bias0):
        outputs = model(x, weight0, bias0)
        y = outputs[0]
        return tf.reduce_mean((tf.reshape(y, target.shape) - target) ** 2), outputs

    loss, outputs, gradients = differentiate(objective, [x, weight0, bias0], [1, 2])
    results = {"loss": loss}
    results |= {f"output {i}": y for i, y in enumerate(outputs)}
    results["gradient of weight0"] = gradients[0]
    results["gradient of bias0"] = gradients[1]
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
