# What a random layer draws in its recomputation is not what it drew before.
# Found at step 0, microbatch 0, layer 1 (dropout), execution 1: expected 4 elements from offset
# 0, hash 0x7682cd0a395fa7cd, got 4 elements from offset 0, hash 0xf3cf9e889e9f604d
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
    x = torch.tensor([[-0.47, 0.14], [0.83, 0.08]], requires_grad=True)

    def block(x):
        with keep():
            x = x + 0.5 * torch.randn_like(x)
        return F.dropout(x)

    torch.manual_seed(0)
    if checkpointed:
        y = checkpoint(block, x, use_reentrant=False, context_fn=contexts)
    else:
        y = block(x)
    y.sum().backward()
    return {"x.grad": x.grad}


plain, checkpointed = run(checkpointed=False), run(checkpointed=True)
different = [name for name in plain if not torch.equal(plain[name], checkpointed[name])]
for name, expected in plain.items():
    got = checkpointed[name]
    print(f"{name}\n  plain         {expected}\n  checkpointed  {got}")
    print("  difference   ", got - expected)
print("DIFFERENT: " + ", ".join(different) if different else "same")
sys.exit(1 if different else 0)
