# dropout-masks: Every recomputation of a random layer draws what its forward drew, and every forward what the plain run drew.
# at: step 0, microbatch 0, layer 1 (dropout), execution 1
# expected: 24 elements from offset 0, hash 0x56952f7bc9baeb22
# got: 24 elements from offset 0, hash 0x922d79c0e94c4a9a
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


x = tf.constant(np.random.default_rng(85).standard_normal((3, 4, 2)).astype(np.float32))
target = tf.constant(np.array([[0.6506611108779907, 0.07081067562103271, -0.39397215843200684, -0.4688056707382202, 0.31083953380584717, 0.36361396312713623, -0.7073017358779907, 0.45285165309906006], [0.7916061878204346, -0.5584167242050171, 0.1938232183456421, 0.766803503036499, 0.5170623064041138, 0.23923063278198242, -0.8562161922454834, -0.3652309775352478], [-0.1103636622428894, 0.7282033562660217, -0.9696599841117859, 0.5326257944107056, -0.43597233295440674, 0.2691608667373657, 0.5326747894287109, -0.06813061237335205]], np.float32))


def plain(x):
    v0 = tf.nn.relu(x)
    v1 = tf.nn.dropout(v0, 0.5)
    v2 = v1 + x
    v3 = v2 * x
    v4 = tf.nn.relu(v3)
    return (v4,)


def checkpointed(x):
    def checkpointed_segment_0_3(x):
        v0 = tf.nn.relu(x)
        v1 = tf.nn.dropout(v0, 0.5)
        v2 = v1 + x
        return x, v2
    x, v2 = tf.recompute_grad(checkpointed_segment_0_3)(x)
    def checkpointed_segment_3_4(v2, x):
        v3 = v2 * x
        return v3
    v3 = tf.recompute_grad(checkpointed_segment_3_4)(v2, x)
    def checkpointed_segment_4_5(v3):
        v4 = tf.nn.relu(v3)
        return v4
    v4 = tf.recompute_grad(checkpointed_segment_4_5)(v3)
    return (v4,)


def run(model):
    tf.random.set_seed(0), np.random.seed(0), tf.random.get_global_generator().reset_from_seed(0)

    def objective(x):
        outputs = model(x)
        y = outputs[0]
        return tf.reduce_mean((tf.reshape(y, target.shape) - target) ** 2), outputs

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
