# errors: Neither run fails, except that a determinism check on values may notice a recomputation without random state.
# at: checkpointed run
# expected: no error
# got: BrokenPromise: With use_reentrant=False, integer tensors may be among the inputs. Not so (integer_argument_not_reentrant) with lambda function, **options: lambda *values, **keywords: recompute(function, *values, **options, **keywords): RuntimeError: Stack input_args_info_stack_ is empty, plain [[0.9553365111351013, 0.0, 0.4535960853099823]]
# mindspore 2.10.0; run: python this_file.py
import os
import re

os.environ["OMP_NUM_THREADS"] = "1"
import mindspore as ms
from mindspore import nn, ops

ms.set_context(mode=ms.PYNATIVE_MODE, device_target="CPU", runtime_num_threads=1)
ms.set_deterministic(True)
import numpy as np


class Segment(nn.Cell):
    """A function as a cell, with the modules that it calls."""

    def __init__(self, function, modules):
        super().__init__()
        self.function = function
        self.modules = nn.CellList(modules)

    def construct(self, *values, **keywords):
        return self.function(*values, **keywords)


def modules_of(function):
    """The modules that the function calls, itself or in segments within it."""
    names = [n for n in function.__code__.co_names if re.fullmatch(r"m\d+|(\w+_)?segment_\w+", n)]
    found = [function.__globals__[n] for n in names]
    return [m for f in found for m in ([f] if isinstance(f, nn.Cell) else modules_of(f))]


def recompute(function, *values, **options):
    """Lists are the parameters of modules. They belong to the cell and are not passed on."""
    tensors = [v for v in values if not isinstance(v, list)]

    def run(*given, **keywords):
        left = iter(given)
        merged = [v if isinstance(v, list) else next(left) for v in values]
        return function(*merged, **keywords)

    return ms.recompute(Segment(run, modules_of(function)), *tensors, **options)


def leaf(*values):
    return ms.Tensor(np.array(values or (0.3, -0.7, 1.1), np.float32))


def gradients(function, *inputs):
    """Of a function that returns a number."""
    found = ms.grad(function, tuple(range(len(inputs))))(*inputs)
    return [g.asnumpy() for g in (found if isinstance(found, tuple) else (found,))]


def integer_argument_not_reentrant(checkpoint):
    """With use_reentrant=False, integer tensors may be among the inputs."""
    function = checkpoint(lambda x, i: ops.gather(ops.sin(x), i, 0), use_reentrant=False)
    index = ms.Tensor(np.array([0, 2], np.int32))
    return gradients(lambda x: function(x, index).sum(), leaf())


def outcome(wrap):
    try:
        found = integer_argument_not_reentrant(wrap)
        return found if isinstance(found, tuple) else np.array(found)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


plain, checkpointed = outcome(lambda function, **options: function), outcome(lambda function, **options: lambda *values, **keywords: recompute(function, *values, **options, **keywords))
plain, checkpointed = checkpointed if isinstance(checkpointed, tuple) else (plain, checkpointed)
print("plain        ", plain)
print("checkpointed ", checkpointed)
same = np.array_equal(plain, checkpointed)
print("same" if same else "DIFFERENT")
raise SystemExit(0 if same else 1)
