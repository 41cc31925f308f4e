"""Layers that torch.nn does not have, as the reference computes them.

Scripts show the source of a function, so it uses nothing but PyTorch.
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


def delayed_scaling(x, scale, training=True):
    """Divides x by the scale that forwards before this one left, which is of one element, and
    moves it halfway to the largest magnitude in x, NaN left out."""
    y = x / scale.clone()
    if training:
        with torch.no_grad():
            # In halves, which do not overflow.
            scale.copy_(scale / 2 + x.abs().nan_to_num(posinf=torch.inf).max() / 2)
    return y


class Float8(torch.autograd.Function):
    """x in float8, in units of a scale. Its gradient passes as if nothing were rounded."""

    @staticmethod
    def forward(context, x, scale):
        units = (x / scale).clamp(-448, 448).to(torch.float8_e4m3fn)
        return units.to(x.dtype) * scale

    @staticmethod
    def backward(context, gradient):
        return gradient, None


def delayed_float8(x, history, training=True):
    """x as it is in float8 e4m3. The largest magnitude of as many forwards as the history has room
    for becomes the largest float8, 448; this forward counts, without NaN, for later ones."""
    top = history.max()
    y = Float8.apply(x, torch.where(top > 0, top / 448, 1.0))
    if training:
        with torch.no_grad():
            latest = x.abs().nan_to_num(posinf=torch.inf).max()
            history.copy_(torch.cat((history[1:], latest.view(1))))
    return y


def early_exit(x, weight):
    """x and what its branch makes of the samples that stay. A sample exits if its first value is
    positive: the others are gathered, and the branch's results are added to their rows."""
    stays = torch.where(~(x.flatten(1)[:, 0] > 0))[0]
    return x.index_add(0, stays, F.linear(x[stays], weight).to(x.dtype))


def hooked(x, factor):
    """A copy of x, with a hook that multiplies its gradient."""
    y = x.clone()
    if y.requires_grad:
        y.register_hook(lambda gradient: factor * gradient)
    return y


def kv_cache(x, cache, training=True):
    """x, [batch, length, features], behind the rows that forwards before this one left, [kept,
    features]. Training leaves the last ones of the first sequence."""
    y = torch.cat((cache.expand(len(x), -1, -1), x), 1)
    if training:
        with torch.no_grad():
            cache.copy_(y[0, -len(cache) :])
    return y


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


def gru(x, weights, training=True):
    """The states [batch, steps, features] from zeros on; `weights` in the order of nn.GRU."""
    h = x.new_zeros(1, x.shape[0], weights[1].shape[1])
    return torch.gru(x, h, weights, len(weights) == 4, 1, 0.0, training, False, True)[0]


def lstm(x, weights, training=True):
    """The states [batch, steps, features] from zeros on; `weights` in the order of nn.LSTM."""
    h = x.new_zeros(1, x.shape[0], weights[1].shape[1])
    return torch.lstm(x, (h, h), weights, len(weights) == 4, 1, 0.0, training, False, True)[0]


def rotary(x, features, heads):
    """Turns the first features, those of so many heads, by their row's position."""
    size = features // heads
    position = torch.arange(x.shape[1], dtype=torch.float64, device=x.device)
    pair = torch.arange(size // 2, dtype=torch.float64, device=x.device)
    radians = position[:, None, None] * 10000.0 ** (-2 * pair / size)
    dtype = torch.promote_types(x.dtype, torch.float32)
    cos, sin = radians.cos().to(dtype), radians.sin().to(dtype)
    first, second = x[..., :features].unflatten(-1, (heads, size)).chunk(2, -1)
    turned = torch.cat((first * cos - second * sin, second * cos + first * sin), -1).flatten(-2)
    return torch.cat((turned, x[..., features:]), -1)


def spectral_norm(x, u, v, weight, bias=None, training=True):
    """F.linear() with the weight divided by u^T weight v, which estimates its largest singular
    value. Training takes a step of the power iteration first, from the u that forwards before this
    one left, as nn.utils.spectral_norm does."""
    if training:
        with torch.no_grad():
            v.copy_(F.normalize((weight * u[:, None]).sum(0), dim=0, eps=1e-12))
            u.copy_(F.normalize((weight * v).sum(1), dim=0, eps=1e-12))
    # The next forward writes to both.
    left, right = u.clone(), v.clone()
    sigma = (left * (weight * right).sum(1)).sum()
    return F.linear(x, weight / sigma, bias)


def stochastic_depth(x, weight, p=0.5, training=True):
    """x and what its branch makes of it. In training, samples skip the branch with probability p:
    those that take it are gathered, and its results, scaled, are added to their rows."""
    if not training or p == 0:
        return x + F.linear(x, weight)
    kept = torch.where(torch.rand(len(x), device=x.device) >= p)[0]
    branch = F.linear(x[kept], weight) / (1 - p)
    return x.index_add(0, kept, branch.to(x.dtype))


FUNCTIONS = (attention, delayed_scaling, spectral_norm, kv_cache, gru, lstm, moe, hooked, rotary)
FUNCTIONS += (stochastic_depth, early_exit, Float8, delayed_float8)
"""Functions whose source a script shows if it calls them, each below those that it uses."""
