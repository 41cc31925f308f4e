# executions: Every layer runs as often as the forecast says: once for the forward and once for each recomputation that reaches it. It computes each time, unless a policy kept its results.
# at: step 0, microbatch 0, layer 0 (relu), checkpointed run
# expected: 2
# got: 3
# mlx 0.32.4; run: python this_file.py
import sys
from collections import Counter

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten, tree_unflatten
import numpy as np


def bound(module, parameters):
    """The module with other values for what it trains."""
    names = [name for name, _ in tree_flatten(module.trainable_parameters())]
    module.update(tree_unflatten(list(zip(names, parameters, strict=True))))
    return module


def differentiate(objective, arguments, trained):
    if not trained:
        loss, outputs = objective(*arguments)
        return loss, outputs, []
    (loss, outputs), gradients = mx.value_and_grad(objective, argnums=trained)(*arguments)
    # A single number gives a gradient that is not in a list.
    gradients = [gradients] if len(trained) == 1 else gradients
    mx.eval(loss, outputs, gradients)
    return loss, outputs, gradients


def parameters_of(m):
    return [value for _, value in tree_flatten(m.trainable_parameters())]


def state_of(m):
    trained = [name for name, _ in tree_flatten(m.trainable_parameters())]
    return [value for name, value in tree_flatten(m.parameters()) if name not in trained]


def set_mode(m, train):
    m.train(train)


x = mx.array(np.array([[0.1, -0.1]], np.float32))
target = mx.array(np.array([[-0.0640532374382019, -0.03994709253311157]], np.float32))


runs = Counter()


def enter(layer):
    runs[layer] += 1


def plain(x, w1):
    enter(0)
    v0 = nn.relu(x)
    enter(1)
    v1 = bound(m1, w1)(v0[None], v0[None], v0[None])[0]
    return (v1,)


def checkpointed_segment_0_1(x):
    enter(0)
    v0 = nn.relu(x)
    return v0


def checkpointed_segment_0_2(x, w1):
    v0 = mx.checkpoint(checkpointed_segment_0_1)(x)
    enter(1)
    v1 = bound(m1, w1)(v0[None], v0[None], v0[None])[0]
    return v1


def checkpointed(x, w1):
    v1 = mx.checkpoint(checkpointed_segment_0_2)(x, w1)
    return (v1,)


def run(model):
    global m1
    mx.random.seed(1)
    m1 = nn.MultiHeadAttention(2 * 1, 2)
    set_mode(m1, True)
    w1 = parameters_of(m1)
    runs.clear()
    mx.random.seed(0)

    def objective(x, w1):
        outputs = model(x, w1)
        y = outputs[0]
        return ((y.reshape(target.shape) - target) ** 2).mean(), outputs

    loss, outputs, gradients = differentiate(objective, [x, w1], [1])
    results = {"loss": loss}
    results |= {f"output {i}": y for i, y in enumerate(outputs)}
    results["gradient of w1"] = gradients[0]
    results["state of m1"] = state_of(m1)
    results["random state"] = mx.random.state[0]
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
