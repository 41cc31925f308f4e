# dropout-masks: A recomputation of a random layer draws what its forward drew, and every forward draws what the plain run drew.
# at: step 0, microbatch 0, layer 0 (dropout), execution 1
# expected: 16 elements from offset 0, hash 0xfa5aac0a530bf2bd
# got: 16 elements from offset 0, hash 0x707a2c29ddff9185
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


x = tf.constant(np.array([[0.1, -0.1, 0.6, 0.1, -0.5, 0.4, 1.3, 0.9, -0.7, -1.3, -0.6, 0.0, -2.3, -0.2, -1.2, -0.7]], np.float32))
target = tf.constant(np.array([[0.30829012393951416, -0.01107800006866455, 0.5757807493209839, -0.27048999071121216, -0.28079473972320557, 0.7586703300476074, -0.15706276893615723, 0.10790908336639404, 0.6011084318161011, 0.08747458457946777, -0.3414185643196106, 0.34548723697662354, -0.07403981685638428, -0.2848992943763733, 0.7239762544631958, 0.648617148399353]], np.float32))


def plain(x):
    v0 = tf.nn.dropout(x, 0.5)
    return (v0,)


def checkpointed(x):
    def checkpointed_segment_0_1(x):
        v0 = tf.nn.dropout(x, 0.5)
        return v0
    v0 = tf.recompute_grad(checkpointed_segment_0_1)(x)
    return (v0,)


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


expected, got = run(plain), run(checkpointed)
different = [name for name in got if repr(expected.get(name)) != repr(got.get(name))]
for name in different:
    print(f"{name}\n  expected      {str(expected.get(name))[:999]}")
    print(f"  checkpointed  {str(got.get(name))[:999]}")
print("DIFFERENT: " + ", ".join(different) if different else "same")
sys.exit(1 if different else 0)
