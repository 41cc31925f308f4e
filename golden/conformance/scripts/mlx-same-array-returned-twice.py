# input-gradients: The gradient of the model input has the same bits as in the plain run.
# at: step 0, microbatch 0, gradient of the model input, element 0
# expected: 22.7603965 within 4.9e-05
# got: 11.3801985, in the plain run 22.760397
# mlx 0.32.4; run: python this_file.py
import sys

import mlx.core as mx
import numpy as np


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
        y = model(x)[0]
        return ((y.reshape(target.shape) - target) ** 2).mean()

    return np.array(mx.grad(objective, 0)(x)).tolist()


expected, got = run(plain), run(checkpointed)
different = repr(expected) != repr(got)
print(f"gradient of x\n  expected      {str(expected)[:999]}\n  checkpointed  {str(got)[:999]}")
print("DIFFERENT: gradient of x" if different else "same")
sys.exit(1 if different else 0)
