# buffers-after-step: Running statistics are updated once per forward: after every step they have the same bits as in the plain run.
# at: step 0, buffer 0 (layer 0 all), element 0 (first of 2 that differ, of 2)
# expected: -0.046832408756017685 (0xbfa7fa6ae0000000)
# got: -0.088981576263904572 (0xbfb6c77f20000000)
# mlx 0.32.4; run: python this_file.py
import sys

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


x = mx.array(np.array([[0.1], [-0.1]], np.float32))
target = mx.array(np.array([[-0.2854115664958954], [-0.45054686069488525]], np.float32))


def plain(x, w0):
    v0 = bound(m0, w0)(x)
    return (v0,)


def checkpointed(x, w0):
    def checkpointed_segment_0_1(x):
        v0 = bound(m0, w0)(x)
        return v0
    v0 = mx.checkpoint(checkpointed_segment_0_1)(x)
    return (v0,)


def run(model):
    global m0
    mx.random.seed(0)
    m0 = nn.BatchNorm(1)
    set_mode(m0, True)
    w0 = parameters_of(m0)
    mx.random.seed(0)

    def objective(x, w0):
        outputs = model(x, w0)
        y = outputs[0]
        return ((y.reshape(target.shape) - target) ** 2).mean(), outputs

    loss, outputs, gradients = differentiate(objective, [x, w0], [0, 1])
    results = {"loss": loss}
    results |= {f"output {i}": y for i, y in enumerate(outputs)}
    results["gradient of x"] = gradients[0]
    results["gradient of w0"] = gradients[1]
    results["state of m0"] = state_of(m0)
    results["random state"] = mx.random.state[0]
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
