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

    def of_array(found):
        # tf.gather() has gradients that name their rows.
        return tf.convert_to_tensor(found) if isinstance(found, tf.IndexedSlices) else found

    pairs = zip(tape.gradient(loss, sources), sources, strict=True)
    return [of_module(g, s) if isinstance(s, list) else of_array(g) for g, s in pairs]


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


x = tf.constant(np.random.default_rng(85).standard_normal((5, 10)).astype(np.float32))
target = tf.constant(np.array([[-0.2854115664958954, -0.45054686069488525, -0.7255055904388428, -0.8438042402267456, -0.869086503982544, 0.9063736200332642, 0.8628414869308472, 0.3016715347766876, 0.840431809425354, 0.8769837617874146], [-0.9592486023902893, 0.031146883964538574, 0.1498500108718872, -0.4900117516517639, -0.8903055191040039, -0.7582778930664062, 0.8500024676322937, -0.5902991890907288, -0.15992140769958496, -0.06170463562011719], [0.8947153091430664, -0.8690288662910461, 0.0890578031539917, -0.44963598251342773, 0.7322481870651245, 0.1784651130437851, -0.29056495428085327, -0.6142005920410156, -0.345752477645874, 0.9189466238021851], [0.01755976676940918, -0.22902458906173706, -0.42321938276290894, -0.26075297594070435, -0.5903465747833252, -0.3012956380844116, 0.6677128076553345, 0.15457332134246826, 0.6438527703285217, 0.9520339965820312], [0.9334137439727783, -0.4734875559806824, -0.6620643138885498, -0.8011075258255005, 0.036963462829589844, 0.6336278915405273, -0.06605219841003418, -0.17643606662750244, -0.6330087184906006, -0.5056039094924927]], np.float32))


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


def outcome(model):
    try:
        return run(model)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


plain_results, results = outcome(plain), outcome(checkpointed)
different = []
for name in ["error"] if "error" in plain_results | results else plain_results:
    expected, got = plain_results.get(name), results.get(name)
    print(f"{name}\n  plain         {expected}\n  checkpointed  {got}")
    if not np.array_equal(expected, got):
        different.append(name)
print("DIFFERENT: " + ", ".join(different) if different else "same")
sys.exit(1 if different else 0)
