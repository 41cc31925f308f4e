# parameter-gradients: Every parameter gradient has the same bits as in the plain run.
# at: step 0, gradient of parameter 0 (layer 1 rms_norm weight), element 0
# expected: 0.143983998 within 1.3e-05
# got: 0.0719920024, in the plain run 0.143984005
# mlx 0.32.4; run: python this_file.py
import sys

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten, tree_unflatten
import numpy as np


def dense(x):
    # A gradient comes out of a segment in another layout, and a sum over it in another order.
    same = mx.custom_function(lambda x: x)
    same.vjp(lambda primals, cotangent, output: mx.contiguous(cotangent))
    return same(x)


def differentiate(objective, arguments, trained):
    if not trained:
        loss, outputs = objective(*arguments)
        return loss, outputs, []
    (loss, outputs), gradients = mx.value_and_grad(objective, argnums=trained)(*arguments)
    # A single number gives a gradient that is not in a list.
    gradients = [gradients] if len(trained) == 1 else gradients
    mx.eval(loss, outputs, gradients)
    return loss, outputs, gradients


x = mx.array(np.random.default_rng(85).standard_normal((3, 3, 7, 7)).astype(np.float32))
target = mx.array(np.array([45, 9, 35], np.int32))
weight1 = mx.array(np.array([-0.1, 0.6, 0.1, -0.5, 0.4, 1.3, 0.9], np.float32))
weight3 = mx.array(np.array([[[[-0.7]], [[-1.3]], [[-0.6]]], [[[0.0]], [[-2.3]], [[-0.2]]], [[[-1.2]], [[-0.7]], [[-0.5]]]], np.float32))
bias3 = mx.array(np.array([-0.3, 0.4, 1.0], np.float32))


def plain(x, weight1, weight3, bias3):
    v0 = x + x
    v1 = mx.fast.rms_norm(v0, weight1, 1e-5)
    v2 = mx.sigmoid(v1)
    v3 = dense(mx.conv2d(v2.transpose(0, 2, 3, 1), weight3.transpose(0, 2, 3, 1), 2, 0).transpose(0, 3, 1, 2) + bias3.reshape(1, -1, 1, 1))
    v4, v4_1 = (v3, v3)
    v5 = v4 + v4_1
    v6 = nn.relu(v5)
    v7 = mx.flatten(v6, 1)
    return (v7,)


def checkpointed_segment_2_4(v1, weight3, bias3):
    v2 = mx.sigmoid(v1)
    v3 = dense(mx.conv2d(v2.transpose(0, 2, 3, 1), weight3.transpose(0, 2, 3, 1), 2, 0).transpose(0, 3, 1, 2) + bias3.reshape(1, -1, 1, 1))
    return v3


def checkpointed_segment_2_4_(v1, weight3, bias3):
    v3 = mx.checkpoint(checkpointed_segment_2_4)(v1, weight3, bias3)
    return v3


def checkpointed_segment_4_5(v3):
    v4, v4_1 = (v3, v3)
    return v4, v4_1


def checkpointed_segment_7_8(v6):
    v7 = mx.flatten(v6, 1)
    return v7


def checkpointed(x, weight1, weight3, bias3):
    v0 = x + x
    v1 = mx.fast.rms_norm(v0, weight1, 1e-5)
    v3 = mx.checkpoint(checkpointed_segment_2_4_)(v1, weight3, bias3)
    v4, v4_1 = mx.checkpoint(checkpointed_segment_4_5)(v3)
    v5 = v4 + v4_1
    v6 = nn.relu(v5)
    v7 = mx.checkpoint(checkpointed_segment_7_8)(v6)
    return (v7,)


def run(model):
    mx.random.seed(0)

    def objective(x, weight1, weight3, bias3):
        outputs = model(x, weight1, weight3, bias3)
        y = outputs[0]
        return nn.losses.cross_entropy(y.reshape(len(target), -1), target, reduction='mean'), outputs

    loss, outputs, gradients = differentiate(objective, [x, weight1, weight3, bias3], [1, 2, 3])
    results = {"loss": loss}
    results |= {f"output {i}": y for i, y in enumerate(outputs)}
    results["gradient of weight1"] = gradients[0]
    results["gradient of weight3"] = gradients[1]
    results["gradient of bias3"] = gradients[2]
    results["random state"] = mx.random.state[0]
    return {name: numbers(value) for name, value in results.items()}


def numbers(value):
    if isinstance(value, (list, tuple)):
        return np.concatenate([np.ravel(part) for part in value] or [[]])
    return np.array(value)


plain_results, results = run(plain), run(checkpointed)
different = []
for name, expected in plain_results.items():
    got = results[name]
    print(f"{name}\n  plain         {expected}\n  checkpointed  {got}")
    if not np.array_equal(expected, got):
        different.append(name)
print("DIFFERENT: " + ", ".join(different) if different else "same")
sys.exit(1 if different else 0)
