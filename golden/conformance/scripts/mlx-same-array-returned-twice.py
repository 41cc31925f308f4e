# input-gradients: The gradient of the model input has the same bits as in the plain run.
# at: step 0, microbatch 0, gradient of the model input, element 0
# expected: -1.32382202 within 1.9e-06
# got: 0, in the plain run -1.32382202
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


x = mx.array(np.array([[0.1]], np.float32))
target = mx.array(np.array([[-0.9634569883346558, 0.30282068252563477]], np.float32))


def plain(x):
    v0, v0_1 = (x, x)
    v1 = nn.relu(v0)
    v2 = mx.concatenate([v1, v0_1], 1)
    return (v2,)


def checkpointed_segment_0_1(x):
    v0, v0_1 = (x, x)
    return v0, v0_1


def checkpointed(x):
    v0, v0_1 = mx.checkpoint(checkpointed_segment_0_1)(x)
    v1 = nn.relu(v0)
    v2 = mx.concatenate([v1, v0_1], 1)
    return (v2,)


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
