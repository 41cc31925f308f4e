# Checkpointing fails where the plain run does not, or the other way round.
# Found at checkpointed run: expected no error, got RuntimeError: aten.view.default encountered
# during backward but not found in storage
# torch 2.15.0+cu132; run: python this_file.py
import sys
from functools import partial

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts


def policy(ctx, op, *args, **kwargs):
    if not op.is_view and not op._schema.is_mutable and "empty" not in str(op):
        return CheckpointPolicy.MUST_SAVE
    return CheckpointPolicy.PREFER_RECOMPUTE


contexts = partial(create_selective_checkpoint_contexts, policy)


def run(checkpointed):
    def call(function, *args, **options):
        return checkpoint(function, *args, **options) if checkpointed else function(*args)

    x = torch.tensor([[0.16]])
    weight = torch.tensor([[0.8]], requires_grad=True)
    bias = torch.tensor([-0.03], requires_grad=True)

    def block0(x):
        return F.linear(x, weight, bias)

    def block1(x):
        return call(block0, x, use_reentrant=False, context_fn=contexts)

    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = call(block1, x, use_reentrant=False, early_stop=False)
        loss = y.sum()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss.backward()


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
