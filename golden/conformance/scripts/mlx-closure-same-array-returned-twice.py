# parameter-gradients: Every parameter gradient has the same bits as in the plain run.
# at: step 0, gradient of parameter 0 (layer 1 linear weight), element 0
# expected: 0.0220714856 within 3.9e-08
# got: 0, in the plain run 0.0220714845
# mlx 0.32.4; run: python this_file.py
import sys

import mlx.core as mx
import numpy as np


x = mx.array(np.array([[0.1]], np.float32))
target = mx.array(np.array([[-0.7084053754806519]], np.float32))
weight1 = mx.array(np.array([[-0.1]], np.float32))
bias1 = mx.array(np.array([0.6], np.float32))


def plain(x, weight1, bias1):
    v0, v0_1 = (x, x)
    v1 = v0 @ weight1.T + bias1
    return (v1, v0_1,)


def checkpointed(x, weight1, bias1):
    v0, v0_1 = (x, x)
    def checkpointed_segment_1_2(v0, v0_1):
        v1 = v0 @ weight1.T + bias1
        return v0_1, v1
    v0_1, v1 = mx.checkpoint(checkpointed_segment_1_2)(v0, v0_1)
    return (v1, v0_1,)


def run(model):
    mx.random.seed(0)

    def objective(x, weight1, bias1):
        y = model(x, weight1, bias1)[0]
        return ((y.reshape(target.shape) - target) ** 2).mean()

    return np.array(mx.grad(objective, 1)(x, weight1, bias1)).tolist()


expected, got = run(plain), run(checkpointed)
different = repr(expected) != repr(got)
print(f"gradient of weight1\n  expected      {str(expected)[:999]}\n  checkpointed  {str(got)[:999]}")
print("DIFFERENT: gradient of weight1" if different else "same")
sys.exit(1 if different else 0)
