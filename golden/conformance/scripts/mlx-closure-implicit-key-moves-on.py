# dropout-masks: A recomputation of a random layer draws what its forward drew, and every forward draws what the plain run drew.
# at: step 0, microbatch 0, layer 0 (dropout), execution 1
# expected: 1 element from offset 0, hash 0x00e83d0a3f7519ad
# got: 1 element from offset 0, hash 0x94f6d9cdd1ea8248
# mlx 0.32.4; run: python this_file.py
import sys

import mlx.core as mx
import mlx.nn as nn
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
target = mx.array(np.array([[0.9805089235305786]], np.float32))


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
    return np.array(mx.random.state[0]).tolist()


expected, got = run(plain), run(checkpointed)
different = repr(expected) != repr(got)
print(f"random state\n  expected      {str(expected)[:999]}\n  checkpointed  {str(got)[:999]}")
print("DIFFERENT: random state" if different else "same")
sys.exit(1 if different else 0)
