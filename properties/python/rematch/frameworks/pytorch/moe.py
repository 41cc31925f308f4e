"""A mixture of experts as the reference computes it, in a loop over the experts.

Scripts show this source, so it uses nothing but PyTorch.
"""

import torch
import torch.nn.functional as F


def moe(x, router, experts, load, top=1, jitter=0.0, training=True):
    """Each row of x gets the outputs of its `top` likeliest experts, which are matrices, times
    their probabilities. In training the logits get uniform noise below `jitter`, and load counts
    the rows of each expert."""
    rows = x.reshape(-1, x.shape[-1])
    logits = F.linear(rows, router)
    if training and jitter:
        logits = logits + jitter * torch.rand_like(logits)
    p = logits.softmax(1)
    # The first of equals is chosen, which topk() does not promise.
    chosen = p.detach().sort(dim=1, descending=True, stable=True).indices[:, :top].contiguous()
    weights = p.gather(1, chosen)
    y = torch.zeros(rows.shape, dtype=p.dtype)
    for e, expert in enumerate(experts.unbind()):
        mine, rank = torch.where(chosen == e)
        y = y.index_add(0, mine, weights[mine, rank, None] * F.linear(rows[mine], expert))
    if training:
        with torch.no_grad():
            load += chosen.flatten().bincount(minlength=len(experts))
    return y.view(x.shape)
