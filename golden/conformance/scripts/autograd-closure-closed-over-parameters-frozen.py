# parameter-gradients: Every parameter gradient has the same bits as in the plain run.
# at: step 0, gradient of parameter 0 (layer 0 linear weight), element 0 (first of 1 that differ, of 1)
# expected: -0.1455139358224164 (0xbfc2a0335dbc1946)
# got: 0 (0x0000000000000000)
# autograd 1.9.1; run: python this_file.py
import sys

import autograd.builtins
import autograd.numpy as anp
from autograd.extend import vspace
from autograd.tracer import getval
import numpy as np


def checkpoint_of(function):
    """autograd.checkpoint, of which a plain tuple as the result would have no gradient."""

    def boxed(*arguments):
        y = function(*arguments)
        return autograd.builtins.tuple(y) if isinstance(y, tuple) else y

    return autograd.checkpoint(boxed)


def differentiate(objective, arguments, trained):
    outputs = []

    def loss_of(*arguments):
        loss, values = objective(*arguments)
        outputs.extend(getval(y) for y in values)
        return loss

    if not trained:
        return loss_of(*arguments), outputs, []
    gradients_of, loss = autograd.make_vjp(loss_of, tuple(trained))(*arguments)
    return loss, outputs, gradients_of(vspace(loss).ones())


x = np.array([[0.1]], np.float64)
target = np.array([[0.030355515]], np.float64)
weight0 = np.array([[-0.1]], np.float64)
bias0 = np.array([0.6], np.float64)


def plain(x, weight0, bias0):
    v0 = anp.dot(x, weight0.T) + bias0
    return (v0,)


def checkpointed(x, weight0, bias0):
    def checkpointed_segment_0_1(x):
        v0 = anp.dot(x, weight0.T) + bias0
        return v0
    v0 = checkpoint_of(checkpointed_segment_0_1)(x)
    return (v0,)


def run(model):
    anp.random.seed(0)

    def objective(x, weight0, bias0):
        outputs = model(x, weight0, bias0)
        y = outputs[0]
        return anp.mean((anp.reshape(y, target.shape) - target) ** 2), outputs

    loss, outputs, gradients = differentiate(objective, [x, weight0, bias0], [0, 1, 2])
    results = {"loss": loss}
    results |= {f"output {i}": y for i, y in enumerate(outputs)}
    results["gradient of x"] = gradients[0]
    results["gradient of weight0"] = gradients[1]
    results["gradient of bias0"] = gradients[2]
    results["random state"] = anp.random.get_state()[1:3]
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
