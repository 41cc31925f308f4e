"""F.layer_norm() on the CPU: with a frozen weight the gradient to the input leaves the weight out.

The kernel multiplies by the weight if a gradient to the weight is wanted, and not if there is a weight: with a weight that
requires no gradient, as below an adapter that is tuned, the input's gradient is that of a weight of ones.

severity: silent, wrong gradients, without any checkpoint
versions: paddlepaddle
promise: none is needed; the gradient with a weight that trains is the right one
cause: paddle/phi/kernels/cpu/layer_norm_grad_kernel.cc: `if (d_scale)` where it takes `if (scale)`
"""

import sys

import paddle

GRADIENT = paddle.to_tensor([[1.0, 2.0, 4.0]])


def gradient(run, is_frozen, values):
    x = paddle.to_tensor([[1.0, 3.0, 2.0]], stop_gradient=False)
    run(x, paddle.to_tensor(values, stop_gradient=is_frozen)).backward(GRADIENT)
    return [f"{value:.3f}" for value in x.grad.numpy().flatten()]


def composed(x, weight):
    shifted = x - x.mean()
    return shifted / (shifted.square().mean() + 1e-5).sqrt() * weight


def is_wrong(name, is_frozen, values=(1.0, 2.0, 3.0)):
    got = gradient(lambda x, weight: paddle.nn.functional.layer_norm(x, [3], weight), is_frozen, values)
    expected = gradient(composed, is_frozen, values)
    print(
        f"{name}: {'WRONG' if got != expected else 'right'}: gradient {', '.join(got)}, expected {', '.join(expected)}"
    )
    return got != expected


is_wrong("control: a weight that trains", False)
is_wrong("control: a frozen weight of ones", True, (1.0, 1.0, 1.0))
sys.exit(is_wrong("a frozen weight", True))
