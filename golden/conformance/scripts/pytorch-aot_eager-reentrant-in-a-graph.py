# With checkpointing, other gradients are None.
# Found at step 0, gradient of parameter 0 (layer 0 embedding weight): expected absent (forecast:
# absent), got present
# torch 2.15.0+cu132; run: python this_file.py
import sys

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint


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


def run(checkpointed):
    def call(function, *args, **options):
        return checkpoint(function, *args, **options) if checkpointed else function(*args)

    inputs = [torch.tensor([[1, 0, 1, 0]], dtype=torch.int64)]
    targets = [torch.tensor([[1.0, -2.0, 3.0, 1.0, 1.0, -2.0, -3.0, 0.0]])]
    weight = torch.tensor([[0.0, -1.0], [-3.0, 1.0]], requires_grad=True)
    # The reentrant variant takes these for constants.
    weight_used = weight if checkpointed else weight.detach()

    def block0(x):
        x = F.embedding(x, weight_used)
        return F.linear(x, weight_used)

    def block1(a1):
        x = attention(a1, a1, 2, causal=True)
        return x, a1

    def block2(x):
        a1 = call(block0, x, use_reentrant=True)
        return call(block1, a1, use_reentrant=True, preserve_rng_state=False)

    def block3(x):
        return call(block2, x, use_reentrant=True)

    def block4(x, a1):
        x = F.linear(x, weight_used)
        return attention(x, a1, 2, p=0.1)

    def block5(x, a1):
        return call(block4, x, a1, use_reentrant=True)

    def block6(x, a1):
        return call(block5, x, a1, use_reentrant=True)

    torch.manual_seed(479316412)
    @torch.compile(backend="aot_eager", fullgraph=True)
    def forward(x):
        y, a1 = call(block3, x, use_reentrant=True)
        y = call(block6, y, a1, use_reentrant=True)
        return y

    results = {}
    for step in range(1):
        for i in range(step, step + 1):
            x = inputs[i].clone()
            y = forward(x)
            loss = F.mse_loss(y.flatten(1), targets[i])
            if loss.requires_grad:
                loss.backward()
        results[f"step {step}: weight.grad"] = None if weight.grad is None else weight.grad.clone()
    return results


def same(a, b):
    if a is None or b is None:
        return a is b
    return torch.equal(a, b)


plain, checkpointed = run(checkpointed=False), run(checkpointed=True)
different = [name for name in plain if not same(plain[name], checkpointed[name])]
for name, expected in plain.items():
    got = checkpointed[name]
    print(f"{name}\n  plain         {expected}\n  checkpointed  {got}")
    print("  difference   ", "" if expected is None or got is None else got - expected)
print("DIFFERENT: " + ", ".join(different) if different else "same")
sys.exit(1 if different else 0)
