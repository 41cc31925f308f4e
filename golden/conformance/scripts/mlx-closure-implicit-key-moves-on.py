# dropout-masks: Every recomputation of a random layer draws what its forward drew, and every forward what the plain run drew.
# at: step 0, microbatch 0, layer 0 (dropout), execution 1
# expected: 2 elements from offset 0, hash 0x95e0c70caf8cc336
# got: 2 elements from offset 0, hash 0x3ae820785f7a2994
# mlx 0.32.4; run: python this_file.py
import sys

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten, tree_unflatten
import numpy as np


def differentiate(objective, arguments, trained):
    if not trained:
        loss, outputs = objective(*arguments)
        return loss, outputs, []
    (loss, outputs), gradients = mx.value_and_grad(objective, argnums=trained)(*arguments)
    # A single number gives a gradient that is not in a list.
    gradients = [gradients] if len(trained) == 1 else gradients
    mx.eval(loss, outputs, gradients)
    return loss, outputs, gradients


x = mx.array(np.array([[0.1], [-0.1]], np.float32))
target = mx.array(np.array([[-0.1119617223739624], [0.4426920413970947]], np.float32))


def plain(x):
    v0 = nn.Dropout(0.5)(x)
    return (v0,)


def checkpointed(x):
    def checkpointed_segment_0_1(x):
        v0 = nn.Dropout(0.5)(x)
        return v0
    v0 = mx.checkpoint(checkpointed_segment_0_1)(x)
    return (v0,)


def run(model):
    mx.random.seed(0)

    def objective(x):
        outputs = model(x)
        y = outputs[0]
        return ((y.reshape(target.shape) - target) ** 2).mean(), outputs

    loss, outputs, gradients = differentiate(objective, [x], [0])
    results = {"loss": loss}
    results |= {f"output {i}": y for i, y in enumerate(outputs)}
    results["gradient of x"] = gradients[0]
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
