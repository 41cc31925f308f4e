"""Modules whose recomputation computes something else, or whose region gets no gradient."""

import functools
import time
import uuid

import torch
from modules import INPUTS, given, linear, plant, planted, then
from sound import adapts
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

plant(
    {
        "no-input-requires-grad:embedding": lambda: nn.Embedding(5, 3),
        "nested-output:ReturnsDict": lambda self, x: {"hidden": self.inner(x).tanh()},
        "nested-output:ReturnsMixed": then(lambda y: (y, {"aux": y.square().mean()})),
        "detached-output:ReturnsDetached": then(lambda y: (y, y.detach().exp())),
        "grad-mode:AsksGradMode": then(lambda y: y.tanh() if torch.is_grad_enabled() else y.bfloat16().tanh().float()),
        # What is returned beside tensors is compared, too.
        "grad-mode:ReturnsMode": then(lambda y: (y.tanh(), {"grad": torch.is_grad_enabled()})),
        "nested-input:TakesDict": lambda self, x, more: self.inner(x) + more["bias"].sin(),
        # Where gradients are off, it leaves out what is padded.
        "fast-path:fast_path": lambda: nn.TransformerEncoder(
            nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2
        ).eval(),
        "saved-before-filled:rrelu": lambda: nn.Sequential(nn.Linear(4, 64), nn.RReLU()),
        "kept-then-written:recurrent": lambda: nn.GRU(8, 4),
        "clock-or-entropy:ReadsClock": lambda self, x: (self.inner(x) * (time.perf_counter_ns() % 65537)).sin(),
        "clock-or-entropy:ReadsEntropy": lambda self, x: (self.inner(x) * (uuid.uuid4().int % 9973)).sin(),
        "names-changed:renamed": lambda: nn.Sequential(
            *(checkpoint_wrapper(nn.Sequential(nn.Linear(4, 4), nn.Tanh())) for _ in range(2))
        ),
        "transform-within:differentiates_by_transform": lambda self, x: (
            self.inner(x).tanh() * torch.func.grad(lambda y: y.sin().sum())(x)
        ),
        "view-written:writes_to_view": then(lambda y: checkpoint(lambda z: z.view(-1), y, use_reentrant=True).mul_(2)),
        # The same operator of the same tensors, with another argument.
        "grad-mode:OtherArgument": lambda self, x: nn.functional.gelu(
            self.inner(x), approximate="none" if torch.is_grad_enabled() else "tanh"
        ),
    }
)


def ids():
    return given(torch.tensor([1, 2, 4]))


PADDED = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
INPUTS |= {
    "embedding": ids,
    "TakesDict": lambda: given(torch.randn(3, 4), {"bias": torch.randn(3, 4, requires_grad=True)}),
    "fast_path": lambda: given(torch.randn(2, 5, 8), src_key_padding_mask=PADDED),
    "recurrent": lambda: given(torch.randn(2, 5, 8)),
}


@planted("cache-filled", known=None)
def remembers(self, x):
    if self.known is None:
        self.known = self.inner(x).detach().exp()
    return self.inner(x).tanh() * self.known


@planted("side-output")
def auxiliary_loss(self, x):
    y = self.inner(x)
    self.loss = y.square().mean()
    return y


@planted("context-closed")
def default_dtype():
    layer = nn.Linear(4, 4)

    def block(x):
        return layer(x) * torch.full((4,), 0.1)

    def model(x):
        torch.set_default_dtype(torch.bfloat16)
        try:
            return checkpoint(block, x, use_reentrant=False)
        finally:
            torch.set_default_dtype(torch.float32)

    return model


@planted("rng-not-preserved")
def not_preserved():
    layer = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Tanh())
    return lambda x: checkpoint(layer, x, use_reentrant=False, preserve_rng_state=False)


@planted("switch-makes-leaf", ids, embedding=lambda: nn.Embedding(5, 4), last=linear, gradient_checkpointing=True)
def writes_to_embedding(self, ids):
    x = self.embedding(ids)
    if not self.gradient_checkpointing:
        x += 1
        return self.last(self.inner(x))
    x.requires_grad_()
    x += 1
    return self.last(checkpoint(self.inner, x, use_reentrant=False))


@planted("offloaded-strides")
def sliced():
    layer = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    return lambda x: checkpoint(layer, torch.stack([x, x])[:, :2], use_reentrant=False)


def halves():
    return nn.ModuleList(nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(2))


@planted("not-checkpointed", gradient_checkpointing=True, layers=halves)
def half_of_the_layers(self, x):
    first, second = self.layers
    return second(checkpoint(first, x, use_reentrant=False) if self.gradient_checkpointing else first(x))


@planted("switch-drops-output", gradient_checkpointing=True)
def drops_cache(self, x):
    if self.gradient_checkpointing:
        return {"y": checkpoint(self.inner, x, use_reentrant=False)}
    return {"y": self.inner(x), "cache": x.detach() * 2}


@planted("switch-adds-output", gradient_checkpointing=True)
def adds_cache(self, x):
    if self.gradient_checkpointing:
        return {"y": checkpoint(self.inner, x, use_reentrant=False), "cache": x.detach() * 2}
    return {"y": self.inner(x)}


@planted("swallows-early-stop")
def catches_all(self, x):
    try:
        return self.inner(x.exp()).tanh()
    except Exception:
        return self.inner(x.exp()).sigmoid().tanh()


@planted("hook-of-parameter", lambda: given(torch.randn(3, 4).requires_grad_()))
def clips_each_gradient():
    layer = nn.Linear(4, 4)
    layer.weight.register_hook(lambda gradient: gradient / (1 + gradient.norm()))

    def model(x):
        for _ in range(2):
            x = checkpoint(lambda y: layer(y).tanh(), x, use_reentrant=True)
        return x

    return model


class Tagged(torch.Tensor):
    """Doubles every product that one of its kind takes part in."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        out = super().__torch_function__(func, types, args, kwargs or {})
        if func in (torch.mul, torch.Tensor.mul, torch.Tensor.__mul__):
            with torch._C.DisableTorchFunctionSubclass():
                out = (out + out).as_subclass(cls)
        return out


@planted("subclass", lambda: given(torch.tensor([0.3, 0.5]).as_subclass(Tagged)))
class Multiplies(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor([1.0, -2.0]))

    def forward(self, x):
        return (x * self.w).sin()


@planted("graph-shared")
def closes_over_hidden(self, x):
    x = self.inner(x)
    hidden = x.exp()
    for _ in range(2):
        x = checkpoint(lambda y: (y * hidden).tanh(), x, use_reentrant=True)
    return x


@planted("grad-mode")
def hooks_tensor(self, x):
    y = self.inner(x)
    y.register_hook(lambda gradient: gradient * 2)
    return y.tanh()


@planted("written-in-place")
def writes_afterwards(self, x):
    x = self.inner(x)
    y = checkpoint(lambda z: z.tanh().exp(), x, use_reentrant=False)
    x.add_(1)
    return y


def keeps_all(context, op, *args, **kwargs):
    return CheckpointPolicy.MUST_SAVE


KEEPS_ALL = functools.partial(create_selective_checkpoint_contexts, keeps_all)


@planted("policy")
def keeps_what_is_written(self, x):
    return checkpoint(lambda y: self.inner(y).sin().relu_(), x, use_reentrant=False, context_fn=KEEPS_ALL)


@planted("backward-within")
def force(self, x):
    (gradient,) = torch.autograd.grad(self.inner(x).square().sum(), x, create_graph=True)
    return gradient


@planted("cache-filled")
class CachesCall(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 4))
        self.table = functools.lru_cache(lambda n: self.weight[:n].exp())

    def forward(self, x):
        return (x @ self.table(4)).tanh()


@planted("cache-filled", key=None, value=None)
def remembers_output(self, x):
    """The output that is kept from the forward has no graph in a reentrant recomputation."""
    key = x.detach().tolist()
    if self.key != key:
        self.key, self.value = key, self.inner(x).tanh()
    return self.value * 1.0


@planted("nested-output")
def returns_dict_inside(self, x):
    def both(x):
        y = self.inner(x).tanh()
        return {"y": y, "auxiliary": y.square().mean()}

    found = checkpoint(both, self.inner(x), use_reentrant=True)
    return found["y"] + found["auxiliary"]


@planted("context-closed")
def cached_parametrization():
    """Within cached(), the second use of the weight costs nothing; the backward is outside."""
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))

    def model(x):
        with nn.utils.parametrize.cached():
            return checkpoint(lambda y: layer(layer(y).tanh()), x, use_reentrant=False)

    return model


@planted("flag", warm=True)
def detaches_first(self, x):
    """The same operators of the same values, of which the first forward detaches one."""
    y = self.inner(x)
    if self.warm:
        self.warm, y = False, y.detach()
    return (y + x).tanh()


@planted("does-not-end", scale=lambda: nn.Parameter(torch.ones(4)))
def returns_its_parameter(self, x):
    """The reentrant variant makes the region the history of the parameter, and its backward needs itself."""
    return self.inner(x), self.scale


# Safe elsewhere, but not where what comes before it is frozen, too.
planted("no-input-requires-grad")(adapts)
