# executions: Every layer runs as often as the forecast says: once for the forward and once for each recomputation that reaches it. It computes each time, unless a policy kept its results.
# at: step 0, microbatch 0, layer 3 (linear), checkpointed run
# expected: 2
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


x = tf.constant(np.array([[0.1, -0.1, 0.6], [0.1, -0.5, 0.4], [1.3, 0.9, -0.7], [-1.3, -0.6, 0.0]], np.float32))
target = tf.constant(np.array([[0.033722877502441406, 0.9843412637710571, 0.2689933776855469], [-0.3889923095703125, -0.9782360196113586, -0.13494133949279785], [0.7127389907836914, 0.9457885026931763, -0.5574392080307007], [-0.430070161819458, -0.5451768040657043, -0.831720232963562]], np.float32))
weight3 = tf.constant(np.array([[-2.3, -0.2, -1.2], [-0.7, -0.5, -0.3], [0.4, 1.0, -0.1]], np.float32))


runs = Counter()


def enter(layer):
    runs[layer] += 1


def plain(x, weight3):
    enter(0)
    v0 = x + 0.5 * tf.random.get_global_generator().normal(x.shape)
    enter(1)
    v1 = tf.nn.softmax(v0, -1)
    enter(2)
    v2 = tf.nn.silu(v1)
    enter(3)
    v3 = v2 @ tf.transpose(weight3)
    return (v3,)


def checkpointed(x, weight3):
    def checkpointed_segment_0_3(x):
        enter(0)
        v0 = x + 0.5 * tf.random.get_global_generator().normal(x.shape)
        enter(1)
        v1 = tf.nn.softmax(v0, -1)
        def checkpointed_segment_2_3(v1):
            enter(2)
            v2 = tf.nn.silu(v1)
            return v2
        v2 = tf.recompute_grad(checkpointed_segment_2_3)(v1)
        return v2
    v2 = tf.recompute_grad(checkpointed_segment_0_3)(x)
    def checkpointed_segment_3_4(v2):
        enter(3)
        v3 = v2 @ tf.transpose(weight3)
        return v3
    v3 = tf.recompute_grad(checkpointed_segment_3_4)(v2)
    return (v3,)


def run(model):
    runs.clear()
    tf.random.set_seed(0), np.random.seed(0), tf.random.get_global_generator().reset_from_seed(0)

    def objective(x, weight3):
        outputs = model(x, weight3)
        y = outputs[0]
        return tf.reduce_mean((tf.reshape(y, target.shape) - target) ** 2), outputs

    loss, outputs, gradients = differentiate(objective, [x, weight3], [1])
    results = {"loss": loss}
    results |= {f"output {i}": y for i, y in enumerate(outputs)}
    results["gradient of weight3"] = gradients[0]
    results["random state"] = [tf.random.uniform([]), tf.random.get_global_generator().state]
    results |= {f"runs of layer {i}": n for i, n in runs.items()}
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
