# executions: Every layer runs as often as the forecast says: once for the forward and once for each recomputation that reaches it. It computes each time, unless a policy kept its results.
# at: step 0, microbatch 0, layer 0 (linear), checkpointed run
# expected: 3
# got: 1
# tensorflow 2.21.0; run: python this_file.py
import sys
from collections import Counter

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


x = tf.constant(np.random.default_rng(85).standard_normal((5, 5, 11)).astype(np.float32))
target = tf.constant(np.array([15, 25, 1, 10, 14], np.int32))
weight0 = tf.constant(np.random.default_rng(63).standard_normal((7, 11)).astype(np.float32))
bias0 = tf.constant(np.array([-0.1, 0.6, 0.1, -0.5, 0.4, 1.3, 0.9], np.float32))


runs = Counter()


def enter(layer):
    runs[layer] += 1


def plain(x, weight0, bias0):
    enter(0)
    v0 = x @ tf.transpose(weight0) + bias0
    return (v0,)


def checkpointed(x, weight0, bias0):
    def checkpointed_segment_0_1_(x):
        def checkpointed_segment_0_1(x):
            enter(0)
            v0 = x @ tf.transpose(weight0) + bias0
            return v0
        v0 = tf.recompute_grad(checkpointed_segment_0_1)(x)
        return v0
    v0 = tf.recompute_grad(checkpointed_segment_0_1_)(x)
    return (v0,)


def run(model):
    runs.clear()
    tf.random.set_seed(0), np.random.seed(0), tf.random.get_global_generator().reset_from_seed(0)

    def objective(x, weight0, bias0):
        outputs = model(x, weight0, bias0)
        y = outputs[0]
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=target, logits=tf.reshape(y, [y.shape[0], -1]))), outputs

    loss, outputs, gradients = differentiate(objective, [x, weight0, bias0], [1, 2])
    results = {"loss": loss}
    results |= {f"output {i}": y for i, y in enumerate(outputs)}
    results["gradient of weight0"] = gradients[0]
    results["gradient of bias0"] = gradients[1]
    results["random state"] = [tf.random.uniform([]), tf.random.get_global_generator().state]
    results |= {f"runs of layer {i}": n for i, n in runs.items()}
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
