# parameter-gradients: Every parameter gradient has the same bits as in the plain run.
# at: step 0, gradient of parameter 0 (layer 0 layer_norm weight), element 0 (first of 1 that differ, of 2)
# expected: 2.92047071 (0x403ae8fe)
# got: 0 (0x00000000)
# mlx 0.32.4; run: python this_file.py
import sys

import mlx.core as mx
import numpy as np


x = mx.array(np.array([[0.1, -0.1]], np.float32))
target = mx.array(np.array([[-0.799162745475769]], np.float32))
weight0 = mx.array(np.array([0.6, 0.1], np.float32))
bias0 = mx.array(np.array([-0.5, 0.4], np.float32))


def plain(x, weight0, bias0):
    v0 = mx.fast.layer_norm(x, weight0, bias0, 1e-5)
    v1, v1_1 = mx.split(v0, [1], 1)
    return (v1, v1_1,)


def checkpointed(x, weight0, bias0):
    def checkpointed_segment_0_2(x):
        v0 = mx.fast.layer_norm(x, weight0, bias0, 1e-5)
        v1, v1_1 = mx.split(v0, [1], 1)
        return v1, v1_1
    v1, v1_1 = mx.checkpoint(checkpointed_segment_0_2)(x)
    return (v1, v1_1,)


def run(model):
    mx.random.seed(0)

    def objective(x, weight0, bias0):
        y = model(x, weight0, bias0)[0]
        return ((y.reshape(target.shape) - target) ** 2).mean()

    return np.array(mx.grad(objective, 1)(x, weight0, bias0)).tolist()


expected, got = run(plain), run(checkpointed)
different = repr(expected) != repr(got)
print(f"gradient of weight0\n  expected      {str(expected)[:999]}\n  checkpointed  {str(got)[:999]}")
print("DIFFERENT: gradient of weight0" if different else "same")
sys.exit(1 if different else 0)
