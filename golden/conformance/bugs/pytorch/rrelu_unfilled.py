"""F.rrelu in a checkpoint: the backward reads noise that nobody drew.

rrelu_with_noise saves an empty tensor, and fills it afterwards. Early stop ends the recomputation when the last tensor is
saved, ahead of the filling. A policy that saves the operator keeps what it returns, and not the noise that it writes.

severity: silent, wrong gradients
promise: "checkpointed passes making use of RNG (through dropout for example) have deterministic output as compared to
    non-checkpointed passes" (note in the documentation of torch.utils.checkpoint)
cause: torch/utils/checkpoint.py, _recomputation_hook: stops at the pack of the noise; arguments that a saved operator writes
    are not kept
"""

import sys
from functools import partial

import torch
from torch.nn.functional import rrelu
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts, set_checkpoint_early_stop


torch.use_deterministic_algorithms(True)  # Memory that nobody fills is NaN.


def is_wrong(name, kept=(), is_early=True):
    torch.manual_seed(0)
    x = torch.full((4,), -1.0, requires_grad=True)
    contexts = partial(create_selective_checkpoint_contexts, list(kept))
    with set_checkpoint_early_stop(is_early):
        y = checkpoint(rrelu, x, 0.1, 0.9, True, use_reentrant=False, context_fn=contexts)
        got = torch.autograd.grad(y.sum(), x)[0]
    # The operand is -1, so that the output is minus the slope, and the gradient is the slope.
    wrong = not torch.allclose(-y, got)
    print(f"{name}: {'WRONG' if wrong else 'right'}: gradient {got.tolist()}, expected {(-y).tolist()}")
    return wrong


is_wrong("control: no early stop, nothing saved", is_early=False)
wrong = [is_wrong("early stop"), is_wrong("rrelu is saved", [torch.ops.aten.rrelu_with_noise.default], is_early=False)]
sys.exit(any(wrong))
