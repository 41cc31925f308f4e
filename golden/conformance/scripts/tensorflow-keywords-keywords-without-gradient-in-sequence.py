# absent-gradients: Gradients are absent (None, not zero) exactly where they are in the plain run, and where the forecast says so.
# at: step 0, microbatch 0, gradient of the model input
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


x = tf.constant(np.random.default_rng(85).standard_normal((5, 6)).astype(np.float32))
target = tf.constant(np.array([[0.8350954055786133, 0.6355248689651489, -0.41981446743011475, 0.881869912147522, 0.4091331958770752, 0.9980103969573975], [-0.09401559829711914, -0.8218488693237305, -0.3053646683692932, -0.627885103225708, 0.039612773805856705, -0.920220673084259], [-0.24259233474731445, 0.35354089736938477, -0.4489327669143677, -0.6127257943153381, 0.424222469329834, 0.4036179780960083], [-0.779681921005249, -0.08807522058486938, -0.9506098628044128, -0.4762569069862366, -0.29873377084732056, 0.5172083377838135], [-0.7669554352760315, 0.06310403347015381, 0.7200126647949219, -0.34820109605789185, 0.9868487119674683, 0.5140116214752197]], np.float32))
weight1 = tf.constant(np.random.default_rng(63).standard_normal((6, 6)).astype(np.float32))
bias1 = tf.constant(np.array([-0.1, 0.6, 0.1, -0.5, 0.4, 1.3], np.float32))


def plain(x, weight1, bias1):
    v0 = tf.nn.relu(x)
    v1 = v0 @ tf.transpose(weight1) + bias1
    return (v1,)


def checkpointed_segment_0_1(x):
    v0 = tf.nn.relu(x)
    return v0


def checkpointed(x, weight1, bias1):
    v0 = tf.recompute_grad(checkpointed_segment_0_1)(x=x)
    v1 = v0 @ tf.transpose(weight1) + bias1
    return (v1,)


def run(model):
    tf.random.set_seed(0), np.random.seed(0), tf.random.get_global_generator().reset_from_seed(0)

    def objective(x, weight1, bias1):
        outputs = model(x, weight1, bias1)
        y = outputs[0]
        return tf.reduce_mean((tf.reshape(y, target.shape) - target) ** 2), outputs

    loss, outputs, gradients = differentiate(objective, [x, weight1, bias1], [0, 1, 2])
    results = {"loss": loss}
    results |= {f"output {i}": y for i, y in enumerate(outputs)}
    results["gradient of x"] = gradients[0]
    results["gradient of weight1"] = gradients[1]
    results["gradient of bias1"] = gradients[2]
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
