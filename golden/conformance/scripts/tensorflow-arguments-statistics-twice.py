# buffers-after-step: Running statistics are updated once per forward: after every step they have the same bits as in the plain run.
# at: step 0, buffer 0 (layer 0 all), element 0 (first of 1 that differ, of 1)
# expected: 1 (0x3ff0000000000000)
# got: 2 (0x4000000000000000)
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


x = tf.constant(np.array([[0.1], [-0.1]], np.float32))
target = tf.constant(np.array([[0.96977698802948], [-0.2144157886505127]], np.float32))


def plain(x):
    v0 = counted(m0, x)
    return (v0,)


def checkpointed_segment_0_1(x):
    v0 = counted(m0, x)
    return v0


def checkpointed(x):
    v0 = tf.recompute_grad(checkpointed_segment_0_1)(x)
    return (v0,)


def run(model):
    global m0
    tf.random.set_seed(0), np.random.seed(0), tf.random.get_global_generator().reset_from_seed(0)
    m0 = Owner(1)
    set_mode(m0, True)
    tf.random.set_seed(0), np.random.seed(0), tf.random.get_global_generator().reset_from_seed(0)

    def objective(x):
        outputs = model(x)
        y = outputs[0]
        return tf.reduce_mean((tf.reshape(y, target.shape) - target) ** 2), outputs

    loss, outputs, gradients = differentiate(objective, [x], [0])
    results = {"loss": loss}
    results |= {f"output {i}": y for i, y in enumerate(outputs)}
    results["gradient of x"] = gradients[0]
    results["state of m0"] = state_of(m0)
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
