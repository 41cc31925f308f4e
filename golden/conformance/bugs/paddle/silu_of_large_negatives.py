"""F.silu() on the CPU: the gradient is -inf below about -84.3, and NaN below about -88.

x * exp(-x) overflows there, and further down it is infinite by infinite. One such activation makes a loss of NaN.

severity: silent, NaN, without any checkpoint
versions: paddlepaddle
promise: the formula of the docstring of paddle.nn.functional.silu, x / (1 + exp(-x)), whose gradient is about 0 there
cause: paddle/phi/kernels/funcs/activation_functor.h, SiluGradFunctor: divides by 1 + exp(-x) last
"""

import sys

import paddle


def is_wrong(name, function, values):
    x = paddle.to_tensor(values, stop_gradient=False)
    function(x).sum().backward()
    got = x.grad.tolist()
    wrong = not all(abs(value) < 1e-30 for value in got)
    print(f"{name}: {'WRONG' if wrong else 'right'}: gradient {got}, expected about 0 at {values}")
    return wrong


silu = paddle.nn.functional.silu
is_wrong("control: x * sigmoid(x)", lambda x: x * paddle.nn.functional.sigmoid(x), [-84.5, -89.0, -1000.0])
is_wrong("control: -80", silu, [-80.0])
sys.exit(is_wrong("silu", silu, [-84.5, -89.0, -1000.0]))
