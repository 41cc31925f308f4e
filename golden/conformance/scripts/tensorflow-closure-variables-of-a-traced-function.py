# absent-gradients: Gradients are absent (None, not zero) exactly where they are in the plain run, and where the forecast says so.
# at: step 0, gradient of parameter 0 (layer 0 embedding weight)
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


x = tf.constant(np.array([[0, 0], [0, 0], [0, 0], [0, 0]], np.int32))
target = tf.constant(np.array([[0.19445979595184326, -0.1177167296409607, 0.41598430275917053, -0.6609489321708679, -0.608931303024292, 0.5092425346374512, -0.9874518513679504, -0.6013040542602539, 0.9365051984786987, 0.801664412021637, 0.2334233671426773, -0.8158804774284363, -0.09789448976516724, -0.9077399969100952, -0.009073019027709961, -0.4377184510231018, 0.23534083366394043, 0.0928419828414917, 0.6689425706863403, -0.02496909908950329, -0.31205320358276367, 0.9815559387207031, 0.31024467945098877, 0.21242070198059082], [-0.7726366519927979, 0.31710636615753174, -0.3949219584465027, 0.3780585527420044, 0.2556401491165161, 0.24683988094329834, 0.893159031867981, -0.8418416380882263, -0.18441665172576904, -0.5900352001190186, 0.31937694549560547, -0.40524548292160034, -0.19126802682876587, -0.5827656388282776, -0.8577046394348145, -0.9989959001541138, -0.4797884225845337, -0.1644265055656433, 0.9110516309738159, -0.17467868328094482, -0.3814253807067871, -0.8739035129547119, 0.5052057504653931, 0.22199630737304688], [0.35476136207580566, -0.7120599746704102, 0.650164008140564, -0.6186378598213196, -0.8252394199371338, -0.9972904324531555, -0.4819350838661194, -0.7502374649047852, 0.4184911251068115, 0.2530430555343628, -0.7957535982131958, -0.9716429710388184, 0.37457752227783203, -0.42345649003982544, 0.4927324056625366, 0.5605307817459106, -0.8476155996322632, -0.0966271236538887, -0.7247272729873657, 0.7057336568832397, -0.6217387318611145, 0.3916109800338745, 0.9793345928192139, 0.6821320056915283], [-0.857088029384613, 0.6405899524688721, 0.46179473400115967, 0.5693841576576233, -0.15649007260799408, -0.8974183797836304, -0.7540085911750793, 0.7828346490859985, -0.22344958782196045, -0.8594573736190796, -0.5763020515441895, -0.37617218494415283, 0.27235686779022217, -0.04211663827300072, 0.4935561418533325, -0.9214837551116943, 0.1330089569091797, 0.3044978380203247, 0.8434494733810425, 0.34171557426452637, 0.2441495656967163, 0.8719354867935181, -0.7234659194946289, -0.2682655453681946]], np.float32))
weight0 = tf.constant(np.array([[0.1, -0.1, 0.6, 0.1, -0.5, 0.4, 1.3, 0.9, -0.7, -1.3, -0.6, 0.0]], np.float32))


def plain(x, weight0, w2):
    v0 = tf.gather(weight0, x)
    v1 = tf.reshape(v0, [v0.shape[0], -1])
    v2 = m2.function(v1)
    return (v2,)


def checkpointed(x, weight0, w2):
    def checkpointed_segment_0_1(x):
        v0 = tf.gather(weight0, x)
        return v0
    v0 = tf.recompute_grad(checkpointed_segment_0_1)(x)
    v1 = tf.reshape(v0, [v0.shape[0], -1])
    def checkpointed_segment_2_3(v1):
        v2 = m2.function(v1)
        return v2
    v2 = tf.recompute_grad(checkpointed_segment_2_3)(v1)
    return (v2,)


def run(model):
    global m2
    tf.random.set_seed(2), np.random.seed(2), tf.random.get_global_generator().reset_from_seed(2)
    m2 = Owner(24)
    set_mode(m2, True)
    w2 = parameters_of(m2)
    tf.random.set_seed(0), np.random.seed(0), tf.random.get_global_generator().reset_from_seed(0)

    def objective(x, weight0, w2):
        outputs = model(x, weight0, w2)
        y = outputs[0]
        return tf.reduce_mean((tf.reshape(y, target.shape) - target) ** 2), outputs

    loss, outputs, gradients = differentiate(objective, [x, weight0, w2], [1, 2])
    results = {"loss": loss}
    results |= {f"output {i}": y for i, y in enumerate(outputs)}
    results["gradient of weight0"] = gradients[0]
    results["gradient of w2"] = gradients[1]
    results["state of m2"] = state_of(m2)
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
