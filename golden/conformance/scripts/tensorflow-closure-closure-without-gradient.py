# absent-gradients: A gradient is absent (None, not zero) exactly where it is absent in the plain run, and where the forecast says so.
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

    def of_array(found):
        # tf.gather() has gradients that name their rows.
        return tf.convert_to_tensor(found) if isinstance(found, tf.IndexedSlices) else found

    pairs = zip(tape.gradient(loss, sources), sources, strict=True)
    return [of_module(g, s) if isinstance(s, list) else of_array(g) for g, s in pairs]


def differentiate(objective, arguments, trained, backwards = 1):
    sources = [arguments[i] for i in trained]
    # Without the variables of frozen modules, which count as trainable.
    with tf.GradientTape(persistent=backwards > 1, watch_accessed_variables=False) as tape:
        tape.watch(sources)
        loss, outputs = objective(*arguments)
    found = [gradients_of(tape, loss, sources) for _ in range(backwards)]
    return loss, outputs, found[-1]


def numbers(value):
    if isinstance(value, (list, tuple)):
        value = np.concatenate([np.ravel(part) for part in value] or [[]])
    return np.array(value).tolist()


x = tf.constant(np.array([[0.1, -0.1, 0.6, 0.1]], np.float32))
target = tf.constant(np.array([[-0.3417770266532898, 0.28291550278663635, -0.45766958594322205, 0.5447722673416138]], np.float32))
weight0 = tf.constant(np.array([[-0.5, 0.4, 1.3, 0.9], [-0.7, -1.3, -0.6, 0.0], [-2.3, -0.2, -1.2, -0.7], [-0.5, -0.3, 0.4, 1.0]], np.float32))
bias0 = tf.constant(np.array([-0.1, 1.4, -0.7, 0.4], np.float32))


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


expected, got = run(plain), run(checkpointed)
different = [name for name in got if repr(expected.get(name)) != repr(got.get(name))]
for name in different:
    print(f"{name}\n  expected      {str(expected.get(name))[:999]}")
    print(f"  checkpointed  {str(got.get(name))[:999]}")
print("DIFFERENT: " + ", ".join(different) if different else "same")
sys.exit(1 if different else 0)
