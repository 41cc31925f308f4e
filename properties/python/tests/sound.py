"""Modules that compute the same under checkpointing, though a naive look accuses them."""

import functools
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from modules import INPUTS, Inner, add_sound, given, sound, then
from torch import nn
from torch.utils.checkpoint import checkpoint


def tokens():
    return given(torch.randn(2, 5, 8))


def in_lower_triangle():
    return torch.ones(5, 5, dtype=torch.bool).tril()


add_sound(
    {
        "linear": lambda: nn.Linear(4, 3),
        "identity": lambda: nn.Identity(),
        "normed": lambda: nn.Sequential(nn.LayerNorm(4), nn.SiLU()),
        "perceptron": lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 2)),
        "in_evaluation": lambda: nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5)).eval(),
        "dropouts": lambda: nn.Sequential(
            nn.Conv2d(3, 4, 3), nn.Dropout2d(0.3), nn.AlphaDropout(0.2), nn.FeatureAlphaDropout(0.2), nn.Dropout(0.1)
        ),
        "group_norm": lambda: nn.Sequential(
            nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.SiLU(), nn.Upsample(scale_factor=2)
        ),
        "pixels": lambda: nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.PixelShuffle(2), nn.AdaptiveAvgPool2d(4), nn.Flatten()
        ),
        "old_weight_norm": lambda: nn.Sequential(nn.utils.weight_norm(nn.Linear(4, 4)), nn.Tanh()),
        "weight_norm": lambda: nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)), nn.Tanh()),
        "orthogonal": lambda: nn.utils.parametrizations.orthogonal(nn.Linear(4, 4)),
        "bound_method": lambda: nn.Linear(4, 4).forward,
        "a_partial": lambda: functools.partial(F.linear, weight=nn.Parameter(torch.randn(4, 4))),
        "doubles": lambda: nn.Sequential(nn.Linear(4, 4), nn.GELU()).double(),
        "bfloats": lambda: nn.Sequential(nn.Linear(4, 4), nn.GELU()).bfloat16(),
        "nothing_comes": lambda: nn.Linear(4, 4),
        "encoder": lambda: nn.TransformerEncoder(
            nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2, enable_nested_tensor=False
        ),
        # An input of a reentrant checkpoint that gets no gradient is given None, not a tensor.
        "Unused": lambda self, x, unused: self.inner(x),
        "LayerDrop": lambda self, x: x + self.inner(x) if torch.rand(()) < 0.7 else x * 1.0,
        "Complex": lambda self, x: torch.fft.rfft(self.inner(x)).abs(),
        "OwnFunction": lambda self, x: Cube.apply(self.inner(x)),
        "InPlaceWithin": then(lambda y: (y.mul(2).relu_() + 1).mul_(2)),
        "ReturnsViews": then(lambda y: (y[:, :2], y.t())),
        "ReturnsManyKinds": then(lambda y: (y, None, y.argmax(-1), 3)),
        "ReturnsLoss": then(lambda y: (y, y.square().mean())),
    }
)
INPUTS |= {
    **dict.fromkeys(["dropouts", "group_norm", "pixels"], lambda: given(torch.randn(2, 3, 8, 8))),
    "doubles": lambda: given(torch.randn(3, 4, dtype=torch.float64)),
    "bfloats": lambda: given(torch.randn(3, 4, dtype=torch.bfloat16)),
    "nothing_comes": lambda: given(torch.randn(0, 4)),
    "encoder": tokens,
    "Unused": lambda: given(torch.ones(3, 4), torch.ones(3, 4)),
}


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * 3 * x**2


@sound(base=nn.Module, table=lambda: nn.Parameter(torch.randn(3, 4)))
def adds_its_table(self, x):
    """Its weight and its input get one tensor as their gradients, as both are views in a sum."""
    return (self.table[None] + x.reshape(1, 3, 4)).sin()


@sound()
def keeps_detached(self, x):
    y = self.inner(x)
    self.last = y.detach()
    return y.tanh()


@sound()
def function_of_a_module():
    layer = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
    return lambda x: layer(x) + x


def keywords():
    (hidden,), _ = tokens()
    return given(hidden_states=hidden, attention_mask=in_lower_triangle().float().log(), scale=0.5)


@sound(
    keywords,
    reentrant=False,
    inner=lambda: nn.Linear(8, 8),
    attend=lambda: nn.MultiheadAttention(8, 2, dropout=0.1, batch_first=True),
)
def decoder(self, *, hidden_states, attention_mask=None, scale=1.0, use_cache=False):
    """Keywords alone."""
    y, _ = self.attend(hidden_states, hidden_states, hidden_states, attn_mask=attention_mask, need_weights=False)
    return self.inner(hidden_states + scale * y)


@sound(
    tokens,
    base=nn.Module,
    lstm=lambda: nn.LSTM(8, 8, batch_first=True, bidirectional=True),
    gru=lambda: nn.GRU(16, 4, 2, dropout=0.2),
)
def recurrent_layers(self, x):
    return self.gru(self.lstm(x)[0])


@sound(lambda: given(*tokens()[0], in_lower_triangle()), base=nn.Module, qkv=lambda: nn.Linear(8, 24))
def attention(self, x, mask):
    q, k, v = self.qkv(x).chunk(3, -1)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=0.2)


@sound()
class Tied(Inner):
    def __init__(self) -> None:
        super().__init__()
        self.other = nn.Linear(4, 4)
        self.other.weight = self.inner.weight

    def forward(self, x):
        return self.other(self.inner(x).tanh())


@sound(lambda: given(torch.tensor([[1, 2, 0], [3, 8, 0]])), reentrant=False)
def embedding_of_ids():
    return nn.Sequential(nn.Embedding(9, 8, padding_idx=0), nn.Linear(8, 8))


@sound(activation=lambda: lambda x: x * torch.sigmoid(1.7 * x))
def lambda_inside(self, x):
    return self.activation(self.inner(x))


@sound()
def harmless_hook():
    layer = nn.Linear(4, 4)
    layer.register_forward_hook(lambda module, args, output: output.clamp(-1, 1))
    return layer


@sound(
    base=nn.Module, frozen=lambda: nn.Linear(4, 4).requires_grad_(False), adapter=lambda: nn.Linear(4, 4, bias=False)
)
def adapts(self, x):
    return self.frozen(x) + self.adapter(x)


@sound(
    tokens,
    base=nn.Module,
    route=lambda: nn.Linear(8, 4),
    experts=lambda: nn.ModuleList(nn.Linear(8, 8) for _ in range(4)),
)
def chooses_experts(self, x):
    flat = x.flatten(0, 1)
    weights, chosen = self.route(flat).softmax(-1).topk(2)
    out = torch.zeros_like(flat)
    for i, expert in enumerate(self.experts):
        rows, which = (chosen == i).nonzero(as_tuple=True)
        out = out.index_add(0, rows, expert(flat[rows]) * weights[rows, which, None])
    return out.view_as(x)


@sound(base=nn.Module)
def seeds_its_generator(self, x):
    generator = torch.Generator().manual_seed(3)
    return (x * torch.rand(x.shape, generator=generator)).tanh()


@sound()
def many_operators(self, x):
    y = torch.einsum("bi,ci->bc", self.inner(x), self.inner.weight)
    y = y.cumsum(-1).sort(-1).values
    index = torch.tensor([[0, 1, 1, 2]] * 3)
    y = y.gather(1, index).scatter_add(1, index, x)
    return y.index_select(1, torch.tensor([3, 0, 1])).logsumexp(-1)


@dataclass
class Output:
    logits: torch.Tensor
    hidden: tuple[torch.Tensor, ...] = ()


@sound(reentrant=False)
def returns_dataclass(self, x):
    y = self.inner(x)
    return Output(y.tanh(), (y, x))


def structures():
    batch, more = ({"x": torch.randn(3, 4), "more": [Output(torch.randn(3, 4))]}, Output(torch.randn(3, 4)))
    return given(batch, more, lengths=2, options={"a": 1})


@sound(structures, reentrant=False)
def takes_structures(self, batch, more, lengths=None, flags=(True, None), *, options=None):
    y = self.inner(batch["x"]) + batch["more"][0].logits * more.logits
    return {"y": y * (lengths or 1) if flags[0] else y, "names": list(options)}


def three_blocks():
    return nn.ModuleList(nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.2)) for _ in range(3))


@sound(base=nn.Module, blocks=three_blocks)
def checks_itself(self, x):
    """Checkpoints inside, and rightly."""
    for block in self.blocks:
        x = checkpoint(block, x, use_reentrant=False)
    return x


@sound(base=nn.Module, blocks=three_blocks)
def checks_itself_reentrant(self, x):
    x = x if x.requires_grad else x.detach().requires_grad_()
    for block in self.blocks:
        x = checkpoint(block, x, use_reentrant=True)
    return x


@sound(scale=2.0, names=("a", "b"))
def keeps_constants(self, x):
    self.shape = tuple(x.shape)
    return self.inner(x) * self.scale
