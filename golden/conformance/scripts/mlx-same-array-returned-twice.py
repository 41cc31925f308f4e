# input-gradients: The gradient of the model input has the same bits as in the plain run.
# at: step 0, microbatch 0, gradient of the model input, element 0
# expected: 22.7603965 within 4.9e-05
# got: 11.3801985, in the plain run 22.760397
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


def numbers(value):
    if isinstance(value, (list, tuple)):
        value = np.concatenate([np.ravel(part) for part in value] or [[]])
    return np.array(value).tolist()


x = mx.array(np.array([[0.1]], np.float32))
target = mx.array(np.array([[0.14446842670440674]], np.float32))


def plain(x):
    v0 = x
    v1 = v0 + x
    return (v1,)


def checkpointed_segment_0_1(x):
    v0 = x
    return x, v0


def checkpointed(x):
    x, v0 = mx.checkpoint(checkpointed_segment_0_1)(x)
    v1 = v0 + x
    return (v1,)


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


expected, got = run(plain), run(checkpointed)
different = [name for name in got if repr(expected.get(name)) != repr(got.get(name))]
for name in different:
    print(f"{name}\n  expected      {str(expected.get(name))[:999]}")
    print(f"  checkpointed  {str(got.get(name))[:999]}")
print("DIFFERENT: " + ", ".join(different) if different else "same")
sys.exit(1 if different else 0)
