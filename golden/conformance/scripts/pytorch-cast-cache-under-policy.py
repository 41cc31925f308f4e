# Checkpointing fails where the plain run does not, or the other way round.
# Found at checkpointed run: expected no error, got RuntimeError: aten._to_copy.default invocation
# index 2 encountered during backward but not found in storage
# torch 2.15.0+cu132; run: python this_file.py
import sys
from contextlib import contextmanager
from functools import partial

import torch
import torch.nn as nn
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
    def call(function, *args, **options):
        return checkpoint(function, *args, **options) if checkpointed else function(*args)

    torch.manual_seed(0)
    inputs = [torch.randn(1, 9), torch.randn(1, 9)]
    linear0 = nn.Linear(9, 12)
    linear1 = nn.Linear(12, 9)
    norm = nn.LayerNorm(9)

    def block0(x):
        return linear0(x)

    def block1(x):
        x = linear1(x)
        with keep():
            x = torch.relu(x)
        x = norm(x)
        return linear0(x)

    def forward(x):
        y = call(block0, x, use_reentrant=False, context_fn=contexts)
        y = call(block1, y, use_reentrant=False, context_fn=contexts)
        return y

    optimizer = torch.optim.SGD([linear0.weight, linear0.bias, linear1.weight, linear1.bias, norm.weight, norm.bias], lr=0.1)
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
        for p in (linear0.weight, linear0.bias, linear1.weight, linear1.bias, norm.weight, norm.bias,):
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
