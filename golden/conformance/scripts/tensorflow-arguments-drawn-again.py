# dropout-masks: Every recomputation of a random layer draws what its forward drew, and every forward what the plain run drew.
# at: step 0, microbatch 1, layer 2 (gaussian_noise), forward
# expected: 200 elements from offset 0, hash 0x82d9103ef6e2d812
# got: 200 elements from offset 0, hash 0x7679550ee82a793b
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


x = tf.constant(np.random.default_rng(85).standard_normal((2, 4, 5, 5)).astype(np.float32))
target = tf.constant(np.array([67, 45], np.int32))


def plain(x):
    v0 = tf.nn.softmax(x, -1)
    v1 = v0 + v0
    v2 = v1 + 1 * tf.random.get_global_generator().normal(v1.shape)
    return (v2,)


def checkpointed_segment_0_1(x):
    v0 = tf.nn.softmax(x, -1)
    return v0


def checkpointed_segment_1_3(v0):
    v1 = v0 + v0
    v2 = v1 + 1 * tf.random.get_global_generator().normal(v1.shape)
    return v2


def checkpointed(x):
    v0 = tf.recompute_grad(checkpointed_segment_0_1)(x)
    v2 = tf.recompute_grad(checkpointed_segment_1_3)(v0)
    return (v2,)


def run(model):
    tf.random.set_seed(0), np.random.seed(0), tf.random.get_global_generator().reset_from_seed(0)

    def objective(x):
        outputs = model(x)
        y = outputs[0]
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=target, logits=tf.reshape(y, [y.shape[0], -1]))), outputs

    loss, outputs, gradients = differentiate(objective, [x], [0])
    loss, outputs, gradients = differentiate(objective, [x], [0])
    results = {"loss": loss}
    results |= {f"output {i}": y for i, y in enumerate(outputs)}
    results["gradient of x"] = gradients[0]
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
