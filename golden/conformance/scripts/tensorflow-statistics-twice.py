# buffers-after-step: Running statistics are updated once per forward: after every step they have the same bits as in the plain run.
# at: step 0, buffer 0 (layer 0 all), element 0 (first of 6 that differ, of 6)
# expected: -0.046911861747503281 (0xbfa804d4e0000000)
# got: -0.089132532477378845 (0xbfb6d163c0000000)
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


class BatchNorm(tf.Module):
    def __init__(self, features):
        super().__init__()
        self.scale, self.offset = tf.Variable(tf.ones(features)), tf.Variable(tf.zeros(features))
        self.mean = tf.Variable(tf.zeros(features), trainable=False)
        self.variance = tf.Variable(tf.ones(features), trainable=False)

    def __call__(self, x):
        mean, variance = self.mean, self.variance
        if self.train:
            mean, variance = tf.nn.moments(x, [0, *range(2, len(x.shape))])
            self.mean.assign(0.9 * self.mean + 0.1 * mean)
            self.variance.assign(0.9 * self.variance + 0.1 * variance)
        shape = [1, -1] + [1] * (len(x.shape) - 2)
        given = (tf.reshape(v, shape) for v in (mean, variance, self.offset, self.scale))
        return tf.nn.batch_normalization(x, *given, 1e-3)


x = tf.constant(np.random.default_rng(85).standard_normal((1, 3, 4, 4)).astype(np.float32))
target = tf.constant(np.array([[0.16955959796905518, -0.5352007150650024, -0.5125917792320251, 0.41901135444641113, 0.14499163627624512, -0.8468128442764282, 0.965657114982605, -0.9417310357093811, -0.33335936069488525, -0.2658969759941101, -0.08497476577758789, -0.454378604888916, -0.30975615978240967, -0.9866239428520203, 0.20583927631378174, 0.8452717065811157, 0.983649730682373, 0.07691478729248047, -0.24136662483215332, 0.5963072776794434, 0.7957984209060669, -0.5656200051307678, 0.0350794792175293, -0.5412637591362, 0.5855728983879089, -0.6529353857040405, 0.05796098709106445, -0.11036872863769531, -0.4556109309196472, -0.11212992668151855, -0.27209776639938354, 0.24525022506713867, -0.20810776948928833, -0.12464749813079834, 0.14937138557434082, -0.1856623888015747, -0.3855256140232086, -0.926265299320221, 0.08511638641357422, -0.20330214500427246, -0.45995742082595825, 0.06538701057434082, 0.12318015098571777, 0.3173846900463104, -0.09103071689605713, 0.4911240339279175, 0.11849510669708252, 0.8951398134231567]], np.float32))


def plain(x, w0):
    v0 = m0(x)
    return (v0,)


def checkpointed(x, w0):
    def checkpointed_segment_0_1(x):
        v0 = m0(x)
        return v0
    v0 = tf.recompute_grad(checkpointed_segment_0_1)(x)
    return (v0,)


def run(model):
    global m0
    tf.random.set_seed(0), np.random.seed(0), tf.random.get_global_generator().reset_from_seed(0)
    m0 = BatchNorm(3)
    set_mode(m0, True)
    w0 = parameters_of(m0)
    tf.random.set_seed(0), np.random.seed(0), tf.random.get_global_generator().reset_from_seed(0)

    def objective(x, w0):
        outputs = model(x, w0)
        y = outputs[0]
        return tf.reduce_mean((tf.reshape(y, target.shape) - target) ** 2), outputs

    loss, outputs, gradients = differentiate(objective, [x, w0], [1])
    results = {"loss": loss}
    results |= {f"output {i}": y for i, y in enumerate(outputs)}
    results["gradient of w0"] = gradients[0]
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
