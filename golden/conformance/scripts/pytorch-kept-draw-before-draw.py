# What a random layer draws in its recomputation is not what it drew before.
# Found at step 0, microbatch 0, layer 34 (dropout), execution 1: expected 2 elements from offset
# 0, hash 0xd394158c0e31b002, got 2 elements from offset 0, hash 0xfb34657ab5e1f0e4
# torch 2.15.0+cu132; run: python this_file.py
import sys
from contextlib import contextmanager
from functools import partial

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts


kept = False


@contextmanager
def keep():
    global kept
    kept = True
    try:
        yield
    finally:
        kept = False


def policy(ctx, op, *args, **kwargs):
    if kept and not op.is_view and not op._schema.is_mutable and "empty" not in str(op):
        return CheckpointPolicy.MUST_SAVE
    return CheckpointPolicy.PREFER_RECOMPUTE


contexts = partial(create_selective_checkpoint_contexts, policy)


def run(checkpointed):
    x = torch.tensor([[-0.26, -0.36]], requires_grad=True)
    weight21 = torch.tensor([[0.18, 0.33], [0.14, 0.43]], requires_grad=True)
    bias21 = torch.tensor([-0.65, -0.68], requires_grad=True)
    weight27 = torch.tensor([[0.69, -0.7], [-0.4, -0.47]], requires_grad=True)
    bias27 = torch.tensor([0.15, 0.67], requires_grad=True)

    def block(x):
        x = F.gelu(x)
        with keep():
            x = torch.relu(x)
        x = torch.native_dropout(x, 0.5, True)[0]
        x = torch.sigmoid(x)
        x = torch.native_dropout(x, 0.5, True)[0]
        x = F.gelu(x)
        x = torch.sigmoid(x)
        x = torch.sigmoid(x)
        x = torch.sigmoid(x)
        x = torch.native_dropout(x, 0.5, True)[0]
        x = torch.native_dropout(x, 0.5, True)[0]
        with keep():
            x = torch.tanh(x)
        x = torch.native_dropout(x, 0.5, True)[0]
        x = torch.sigmoid(x)
        x = torch.native_dropout(x, 0.5, True)[0]
        x = F.gelu(x)
        x = torch.native_dropout(x, 0.5, True)[0]
        x = F.gelu(x)
        x = F.silu(x)
        x = torch.native_dropout(x, 0.5, True)[0]
        x = torch.sigmoid(x)
        x = F.linear(x, weight21, bias21)
        x = torch.native_dropout(x, 0.5, True)[0]
        x = torch.native_dropout(x, 0.5, True)[0]
        with keep():
            x = torch.relu(x)
        with keep():
            x = torch.relu(x)
        x = torch.native_dropout(x, 0.5, True)[0]
        x = F.linear(x, weight27, bias27)
        with keep():
            x = torch.native_dropout(x, 0.5, True)[0]
        x = F.gelu(x)
        x = torch.native_dropout(x, 0.5, True)[0]
        x = F.silu(x)
        x = F.silu(x)
        x = torch.sigmoid(x)
        x = torch.native_dropout(x, 0.5, True)[0]
        x = torch.sigmoid(x)
        with keep():
            x = torch.relu(x)
        return x

    torch.manual_seed(0)
    if checkpointed:
        y = checkpoint(block, x, use_reentrant=False, early_stop=False, context_fn=contexts)
    else:
        y = block(x)
    y.sum().backward()
    return {
        "x.grad": x.grad,
        "weight21.grad": weight21.grad,
        "bias21.grad": bias21.grad,
        "weight27.grad": weight27.grad,
        "bias27.grad": bias27.grad,
    }


plain, checkpointed = run(checkpointed=False), run(checkpointed=True)
different = [name for name in plain if not torch.equal(plain[name], checkpointed[name])]
for name, expected in plain.items():
    got = checkpointed[name]
    print(f"{name}\n  plain         {expected}\n  checkpointed  {got}")
    print("  difference   ", got - expected)
print("DIFFERENT: " + ", ".join(different) if different else "same")
sys.exit(1 if different else 0)
