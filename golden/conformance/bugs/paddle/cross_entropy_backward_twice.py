"""F.cross_entropy() on the CPU: a second backward of a retained graph gives another gradient.

The first backward writes the gradient into the saved softmax, which the second one then takes for the softmax.

severity: silent, wrong gradients, without any checkpoint
versions: paddlepaddle
promise: with retain_graph=False "the graph used to compute grads will be freed" (docstring of Tensor.backward); with True, not
cause: paddle/phi/kernels/cpu/cross_entropy_grad_kernel.cc: the gradient may be given the memory of `softmax`
"""

import sys

import paddle

label = paddle.to_tensor([0])


def is_wrong(name, function):
    x, gradients = paddle.to_tensor([[1.0, 2.0]], stop_gradient=False), []
    loss = function(x).sum()
    for _ in range(2):
        x.clear_gradient()
        loss.backward(retain_graph=True)
        gradients.append([round(value, 4) for value in x.grad[0].tolist()])
    wrong = gradients[0] != gradients[1]
    print(f"{name}: {'WRONG' if wrong else 'right'}: second gradient {gradients[1]}, expected {gradients[0]}")
    return wrong


is_wrong("control: log_softmax", lambda x: -paddle.nn.functional.log_softmax(x)[:, 0])
sys.exit(is_wrong("cross_entropy", lambda x: paddle.nn.functional.cross_entropy(x, label)))
