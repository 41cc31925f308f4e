"""F.group_norm() on the CPU: where a weight is 0, the gradients to it and to the input are wrong.

The backward gets the normalized input back from the output, as (output - bias) / weight. Where the weight is 0 it takes 0: the
weight's gradient is 0, so that a weight that starts at 0, as in a residual branch, never trains.

severity: silent, wrong gradients, without any checkpoint
versions: paddlepaddle
promise: none is needed; with a weight of 0.01 both gradients are right
cause: paddle/phi/kernels/cpu/group_norm_grad_kernel.cc: `if (scale_data[...] != 0) val /= scale_data[...]`, or else leaves 0
"""

import sys

import paddle


def gradients(function, value):
    x = paddle.to_tensor([[[1.0, 2.0], [3.0, 5.0]]], stop_gradient=False)
    weight = paddle.to_tensor([value, 1.0], stop_gradient=False)
    function(x, weight).backward(paddle.to_tensor([[[1.0, 2.0], [3.0, 1.0]]]))
    return [f"{value:.3f}" for grad in (weight.grad, x.grad) for value in grad.numpy().flatten()]


def composed(x, weight):
    shifted = x - x.mean()
    return shifted / (shifted.square().mean() + 1e-5).sqrt() * weight.reshape([1, 2, 1])


def is_wrong(name, value):
    got = gradients(lambda x, weight: paddle.nn.functional.group_norm(x, 1, weight=weight), value)
    expected = gradients(composed, value)
    told = f"gradients of weight and input {', '.join(got)}, expected {', '.join(expected)}"
    print(f"{name}: {'WRONG' if got != expected else 'right'}: {told}")
    return got != expected


is_wrong("control: 1", 1.0)
is_wrong("control: 0.01", 0.01)
sys.exit(is_wrong("0", 0.0))
