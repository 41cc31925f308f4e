"""Attention as the reference computes it, by PyTorch's fused function or step by step.

Scripts show this source, so it uses nothing but PyTorch.
"""

import torch
import torch.nn.functional as F


def attention(q, memory, heads, causal=False, fused=False, p=0.0):
    """q: [batch, queries, width]. memory: [batch, keys, 2 * memory_heads * size], keys and values
    of heads of size = width / heads, of which each serves heads / memory_heads heads of q."""
    size = q.shape[2] // heads
    # By another name, so that the gradients of keys and values are added up here.
    split = memory.view_as(memory).unflatten(2, (2, -1, size)).permute(2, 0, 3, 1, 4)
    q = q.unflatten(2, (heads, size)).transpose(1, 2)
    shape = q.shape[2], split.shape[3]
    mask = torch.ones(shape, dtype=torch.bool).tril(shape[1] - shape[0]) if causal else None
    if fused:
        y = F.scaled_dot_product_attention(q, *split, mask, p, enable_gqa=True)
    else:
        k, v = split.repeat_interleave(heads // split.shape[2], 2)
        scores = q @ k.transpose(2, 3) * size**-0.5
        scores = scores if mask is None else scores.masked_fill(~mask, -torch.inf)
        y = F.dropout(scores.softmax(3), p) @ v
    # Dense also where heads have one feature, and the transpose would be flattened as a view.
    return y.transpose(1, 2).contiguous().flatten(2)
