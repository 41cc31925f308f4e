"""The ops of the engine as PyTorch has them, or as functions of its own."""

from types import SimpleNamespace

import torch
import torch.nn.functional as F
from torch.nn.utils.spectral_norm import SpectralNorm


def linear(x, weight, bias=None):
    return F.linear(x, weight, bias)


def conv2d(x, weight, bias=None, stride=1, padding=0):
    return F.conv2d(x, weight, bias, stride=stride, padding=padding)


def max_pool2d(x, kernel, stride, padding):
    return F.max_pool2d(x, kernel, stride, padding)


def avg_pool2d(x, kernel, stride, padding):
    return F.avg_pool2d(x, kernel, stride, padding)


def batch_norm(x, weight, bias, running_mean, running_var, train, momentum, eps):
    return F.batch_norm(x, running_mean, running_var, weight, bias, train, momentum, eps)


def layer_norm(x, weight, bias, eps):
    return F.layer_norm(x, weight.shape, weight, bias, eps)


def rms_norm(x, weight, eps):
    return F.rms_norm(x, weight.shape, weight, eps)


def group_norm(x, weight, bias, groups, eps):
    return F.group_norm(x, groups, weight, bias, eps)


def split(x, first):
    return torch.split(x, [first, x.shape[1] - first], dim=1)


def embedding(tokens, weight):
    return F.embedding(tokens, weight)


def delayed_scaling(x, scale, train):
    y = x / scale.clone()
    if train:
        scale.copy_(scale * 0.5 + x.detach().abs().max() * 0.5)
    return y


class Float8(torch.autograd.Function):
    """x in float8, in units of a scale. Its gradient passes as if nothing were rounded."""

    @staticmethod
    def forward(context, x, scale):
        return (x / scale).clamp(-448, 448).to(torch.float8_e4m3fn).to(x.dtype) * scale

    @staticmethod
    def backward(context, gradient):
        return gradient, None


def delayed_float8(x, history, train):
    top = history.max()
    y = Float8.apply(x, torch.where(top > 0, top / 448, 1.0))
    if train:
        history.copy_(torch.cat((history[1:], x.detach().abs().max().view(1))))
    return y


def spectral_norm(x, weight, bias, u, v, train):
    module = SimpleNamespace(weight_orig=weight, weight_u=u, weight_v=v)
    return F.linear(x, SpectralNorm().compute_weight(module, do_power_iteration=train), bias)


def kv_cache(x, cache, train):
    y = torch.cat((cache.expand(len(x), -1, -1), x), 1)
    if train:
        cache.copy_(y.detach()[0, -len(cache) :])
    return y


def attention(x, memory, heads, causal, fused):
    """Query i sees keys 0 .. i + keys - queries. `fused` is the engine's way to save less."""
    size = x.shape[2] // heads
    q, k, v = (t.unflatten(2, (-1, size)).transpose(1, 2) for t in (x, *memory.chunk(2, 2)))
    k, v = (t.repeat_interleave(heads // t.shape[1], 1) for t in (k, v))
    scores = q @ k.transpose(2, 3) / size**0.5
    if causal:
        seen = torch.ones(scores.shape[2:], dtype=torch.bool).tril(k.shape[2] - q.shape[2])
        scores = scores.masked_fill(~seen, -torch.inf)
    return (scores.softmax(3) @ v).transpose(1, 2).flatten(2)


def rotary(x, features, heads):
    """Two features of a head are a complex number, which is turned by a product."""
    size = features // heads
    speed = 10000.0 ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
    angle = torch.arange(x.shape[1])[:, None, None] * speed
    pairs = x[..., :features].unflatten(-1, (heads, 2, -1)).transpose(-1, -2).contiguous()
    pairs = torch.view_as_complex(pairs)
    turned = pairs * torch.polar(torch.ones_like(angle), angle).to(pairs.dtype)
    turned = torch.view_as_real(turned).transpose(-1, -2).flatten(-3)
    return torch.cat((turned, x[..., features:]), -1)


def hooked(x, factor):
    y = x.clone()
    y.register_hook(lambda gradient: factor * gradient)
    return y


def moe(x, router, experts, load, top, train):
    """A row goes to the `top` likeliest experts, which no entry leaves to rounding."""
    rows = x.reshape(-1, x.shape[-1])
    p = F.linear(rows, router).softmax(1)
    chosen = p.detach().topk(top, dim=1).indices
    weights = torch.zeros_like(p).scatter(1, chosen, p.gather(1, chosen))
    if train:
        load += chosen.flatten().bincount(minlength=len(experts))
    outputs = torch.stack([F.linear(rows, expert) for expert in experts], 1)
    return (weights[:, :, None] * outputs).sum(1).view(x.shape)


def stochastic_depth(x, weight, p, train):
    """Where every sample takes the branch: in evaluation, or with a probability of 0 to skip it."""
    assert p == 0 or not train
    return x + F.linear(x, weight)


def early_exit(x, weight):
    stays = torch.where(~(x.flatten(1)[:, 0] > 0))[0]
    return x.index_add(0, stays, F.linear(x[stays], weight))


def gru(x, weight_ih, weight_hh, *biases):
    """The states from zeros on."""
    h = x.new_zeros(1, x.shape[0], weight_hh.shape[1])
    weights = [weight_ih, weight_hh, *biases]
    return torch.gru(x, h, weights, len(biases) > 0, 1, 0.0, True, False, True)[0]


def lstm(x, weight_ih, weight_hh, *biases):
    h = x.new_zeros(1, x.shape[0], weight_hh.shape[1])
    weights = [weight_ih, weight_hh, *biases]
    return torch.lstm(x, (h, h), weights, len(biases) > 0, 1, 0.0, True, False, True)[0]
