# executions: Every layer runs as often as the forecast says: once for the forward and once for each recomputation that reaches it. It computes each time, unless a policy kept its results.
# at: step 0, microbatch 0, layer 0 (dropout), checkpointed run
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


x = tf.constant(np.random.default_rng(85).standard_normal((5, 9)).astype(np.float32))
target = tf.constant(np.array([[-0.1119617223739624, 0.4426920413970947, -0.9002673029899597, -0.3757062256336212, -0.1504865288734436, 0.06565749645233154, -0.49144184589385986, -0.34784024953842163, 0.5608291625976562], [-0.5117306709289551, -0.3845289945602417, -0.05982840061187744, -0.589719295501709, -0.3561251759529114, 0.046460747718811035, -0.4252825975418091, 0.15771079063415527, 0.11002576351165771], [0.8541480302810669, -0.6165211796760559, -0.4259512424468994, -0.8966173529624939, 0.08679604530334473, -0.35774141550064087, -0.3343311548233032, -0.4777464270591736, 0.0074578518979251385], [0.3668680191040039, -0.6134132742881775, 0.23245394229888916, -0.23606860637664795, -0.3171995282173157, 0.05171537026762962, -0.8638421893119812, -0.5793563723564148, -0.16855114698410034], [0.6322294473648071, -0.3595516085624695, 0.2793877124786377, -0.36602848768234253, 0.9556477069854736, -0.9361034631729126, 0.5068434476852417, 0.28792786598205566, 0.71380615234375]], np.float32))


runs = Counter()


def enter(layer):
    runs[layer] += 1


def plain(x):
    enter(0)
    v0 = tf.nn.dropout(x, 0.9)
    return (v0,)


def checkpointed_segment_0_1(x):
    enter(0)
    v0 = tf.nn.dropout(x, 0.9)
    return v0


def checkpointed_segment_0_1_(x):
    v0 = tf.recompute_grad(checkpointed_segment_0_1)(x=x)
    return v0


def checkpointed(x):
    v0 = tf.recompute_grad(checkpointed_segment_0_1_)(x=x)
    return (v0,)


def run(model):
    runs.clear()
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
