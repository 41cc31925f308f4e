# Checkpointing fails where the plain run does not, or the other way round.
# Found at checkpointed run: expected no error, got RuntimeError: aten._to_copy.default
# encountered during backward but not found in storage
# torch 2.15.0+cu132; run: python this_file.py
import sys
from functools import partial

import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts


def run(checkpointed):
    torch.manual_seed(0)
    inputs = [torch.randn(1, 9), torch.randn(1, 9)]
    linear0 = nn.Linear(9, 12)
    linear1 = nn.Linear(12, 9)

    def block(x):
        return linear0(x)

    def forward(x):
        y = linear0(x)
        y = linear1(y)
        contexts = partial(create_selective_checkpoint_contexts, [torch.ops.aten.relu.default])
        if checkpointed:
            y = checkpoint(block, y, use_reentrant=False, context_fn=contexts)
        else:
            y = block(y)
        return y

    optimizer = torch.optim.SGD([linear0.weight, linear0.bias, linear1.weight, linear1.bias], lr=0.1)
    results = {}
    for step in range(2):
        for i in range(step, step + 1):
            x = inputs[i].clone()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                y = forward(x)
                loss = y.sum()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss.backward()
        optimizer.step()
        for p in (linear0.weight, linear0.bias, linear1.weight, linear1.bias,):
            p.grad = None
    return results


def outcome(checkpointed):
    try:
        run(checkpointed)
    except RuntimeError as error:
        return f"RuntimeError: {error}"
    return "no error"


plain, checkpointed = outcome(checkpointed=False), outcome(checkpointed=True)
print("plain:       ", plain)
print("checkpointed:", checkpointed)
different = (plain == "no error") != (checkpointed == "no error")
print("DIFFERENT: only one of them fails" if different else "same")
sys.exit(1 if different else 0)
