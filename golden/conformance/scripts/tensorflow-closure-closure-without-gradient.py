# absent-gradients: Gradients are absent (None, not zero) exactly where they are in the plain run, and where the forecast says so.
# at: step 0, gradient of parameter 0 (layer 0 linear weight)
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


x = tf.constant(np.array([[0.1]], np.float32))
target = tf.constant(np.array([[0.033722877502441406]], np.float32))
weight0 = tf.constant(np.array([[-0.1]], np.float32))
bias0 = tf.constant(np.array([0.6], np.float32))


def plain(x, weight0, bias0):
    v0 = x @ tf.transpose(weight0) + bias0
    return (v0,)


def checkpointed(x, weight0, bias0):
    def checkpointed_segment_0_1(x):
        v0 = x @ tf.transpose(weight0) + bias0
        return v0
    v0 = tf.recompute_grad(checkpointed_segment_0_1)(x)
    return (v0,)


def run(model):
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
