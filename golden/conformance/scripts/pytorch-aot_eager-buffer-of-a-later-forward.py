# Checkpointing fails where the plain run does not, or the other way round.
# Found at checkpointed run: expected no error, got RuntimeError: one of the variables needed for
# gradient computation has been modified by an inplace operation: [torch.FloatTensor [4]] is at
# version 4; expected version 2 instead
# torch 2.15.0+cu132; run: python this_file.py
import sys

import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint


def run(checkpointed):
    torch.manual_seed(0)
    inputs = [torch.randn(1, 4, 7, 7), torch.randn(1, 4, 7, 7), torch.randn(1, 4, 7, 7), torch.randn(1, 4, 7, 7)]
    bn = nn.BatchNorm2d(4)

    def block(x):
        return bn(x)

    @torch.compile(backend="aot_eager", fullgraph=True)
    def forward(x):
        y = checkpoint(block, x, use_reentrant=False) if checkpointed else block(x)
        return y

    optimizer = torch.optim.SGD([bn.weight, bn.bias], lr=0.01, momentum=0.9)
    results = {}
    for step in range(2):
        waiting = []
        for i in range(step * 2, step * 2 + 2):
            x = inputs[i].clone().requires_grad_()
            y = forward(x)
            loss = y.sum()
            waiting.append((i, x, loss))
        for i, x, loss in reversed(waiting):
            loss.backward()
        optimizer.step()
        for p in (bn.weight, bn.bias,):
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
