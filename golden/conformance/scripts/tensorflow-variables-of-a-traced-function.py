# absent-gradients: Gradients are absent (None, not zero) exactly where they are in the plain run, and where the forecast says so.
# at: step 1, gradient of parameter 0 (layer 0 custom all)
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


x = tf.constant(np.random.default_rng(85).standard_normal((4, 11)).astype(np.float32))
target = tf.constant(np.array([[0.5358303785324097, 0.5097812414169312, 0.6022756099700928, -0.4975544214248657, 0.6626225709915161, -0.0725664496421814, 0.043776869773864746, 0.763768196105957, 0.14434385299682617, 0.8422526121139526, 0.12086355686187744], [-0.24390608072280884, -0.6118025779724121, 0.04966473579406738, -0.8091530799865723, 0.38782501220703125, -0.16201382875442505, 0.7595301866531372, -0.005776882171630859, -0.491152822971344, -0.22072172164916992, -0.916662335395813], [0.6687366962432861, -0.2117938995361328, 0.5509227514266968, -0.18154364824295044, 0.537751317024231, -0.49137282371520996, -0.04147738218307495, -0.9102991819381714, 0.24132025241851807, -0.5191570520401001, 0.5024213790893555], [-0.5556360483169556, 0.4238377809524536, 0.8238868713378906, -0.7322888374328613, -0.9637954831123352, -0.1017683744430542, -0.6274687647819519, 0.707147479057312, 0.9913895130157471, -0.3594384491443634, -0.6884680986404419]], np.float32))


def plain(x, w0):
    v0 = m0.function(x)
    return (v0,)


def checkpointed(x, w0):
    def checkpointed_segment_0_1(x):
        v0 = m0.function(x)
        return v0
    v0 = tf.recompute_grad(checkpointed_segment_0_1)(x)
    return (v0,)


def run(model):
    global m0
    tf.random.set_seed(0), np.random.seed(0), tf.random.get_global_generator().reset_from_seed(0)
    m0 = Owner(11)
    set_mode(m0, True)
    w0 = parameters_of(m0)
    tf.random.set_seed(0), np.random.seed(0), tf.random.get_global_generator().reset_from_seed(0)

    def objective(x, w0):
        outputs = model(x, w0)
        y = outputs[0]
        return tf.reduce_mean((tf.reshape(y, target.shape) - target) ** 2), outputs

    loss, outputs, gradients = differentiate(objective, [x, w0], [0, 1])
    loss, outputs, gradients = differentiate(objective, [x, w0], [0, 1])
    results = {"loss": loss}
    results |= {f"output {i}": y for i, y in enumerate(outputs)}
    results["gradient of x"] = gradients[0]
    results["gradient of w0"] = gradients[1]
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
