# errors: Neither run fails, except that a determinism check on values may notice a recomputation without random state.
# at: checkpointed run
# expected: no error
# got: BrokenPromise: debug=True works with several backwards. Not so (debug_several_backwards): AttributeError: '_GeneratorContextManager' object has no attribute 'args'
# torch 2.15.0+cu132; run: python this_file.py
import torch
import warnings
from torch import Tensor
from torch.utils import checkpoint as api
from typing import Any

def leaf(*values: float, grad: bool = True) -> Tensor:
    """A tensor of these elements, of three without any."""
    return torch.tensor(values or (0.3, -0.7, 1.1), dtype=torch.float32, requires_grad=grad)


class Broken(Exception):
    """A promise is not kept; the text says in which way."""


def equal(got: Any, wanted: Any, what: str) -> None:
    """Tensors are compared to the bit."""
    if isinstance(wanted, Tensor):
        same = isinstance(got, Tensor) and got.dtype == wanted.dtype and torch.equal(got, wanted)
    else:
        same = type(got) is type(wanted) and got == wanted
    # Printing tensors takes longer than all the rest.
    if not same:
        raise Broken(f"{what}: {wanted!r} expected, got {got!r}")


def gradient(output: Tensor, *inputs: Tensor, **options: Any) -> Any:
    """Of the sum of the output; a tuple of several."""
    found = torch.autograd.grad(output.sum(), inputs, **options)
    return found[0] if len(inputs) == 1 else found


def debug_several_backwards() -> None:
    """debug=True works with several backwards."""
    x = leaf()
    out = api.checkpoint(torch.sin, x, use_reentrant=False, debug=True)
    for backwards in (1, 2):
        equal(gradient(out, x, retain_graph=backwards < 2), x.cos().detach(), "gradient")


warnings.simplefilter("ignore")
try:
    debug_several_backwards()
except Exception as error:
    raise SystemExit(f"NOT KEPT: {type(error).__name__}: {error}")
print("kept")
