"""Modules of torch.nn beyond the layers that the harness knows, and such as people write themselves: they
draw, keep state, look at the mode that they run in, or change something in passing.
"""

from rematch.frameworks.pytorch.custom import CustomLayer
from rematch.subjects.adapter_layers import modules_of


def layers_of(table: str, setup: str) -> tuple[CustomLayer, ...]:
    """Returns the layers of a table, as modules_of() reads it. A sample shows all traits of a layer, unless it draws
    elsewhere or runs a backward."""
    found = []
    for m in modules_of(table):
        told = m.traits if "backward" in m.traits else None
        found.append(CustomLayer(m.name, m.shapes, m.make, m.call, m.traits == "draws elsewhere", setup, told))
    return tuple(found)


_SETUP = """\
import numpy
import random
from torch.nn.utils import parametrizations as P
from torch.nn.utils import parametrize
from torch.utils.checkpoint import checkpoint


def twice(m, x):
    with parametrize.cached():
        return m(m(x).tanh())


class Average(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.register_buffer("mean", torch.zeros(width))

    def forward(self, x):
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
        return x - self.mean


class Warmup(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.calls = 0

    def forward(self, x):
        self.calls += self.training
        return self.linear(x) * min(1.0, self.calls / 10)


def slope(m, x):
    with torch.enable_grad():
        y = x.detach().requires_grad_()
        gradient = torch.autograd.grad(m(y).tanh().sum(), y)[0]
    return m(x) + gradient


class Round(torch.autograd.Function):
    @staticmethod
    def forward(context, x):
        context.save_for_backward(x)
        context.shift = 0.5
        return (x + context.shift).floor()

    @staticmethod
    def backward(context, gradient):
        (x,) = context.saved_tensors
        return gradient * (x.abs() < 2) * context.shift
"""
"""Definitions that expressions of layers use; a script has those that its layers need."""

_ATTENTION = "F.scaled_dot_product_attention(x[None, None], x[None, None], x[None, None], {})[0, 0]"

MODULES = layers_of(
    f"""
    rnn | N C -> N C |  | nn.RNN(C, C) | m(x)[0]
    gru_dropout | N C -> N C |  | nn.GRU(C, C, 2, dropout=0.25) | m(x)[0]
    lstm | N C -> N 2C |  | nn.LSTM(C, C, bidirectional=True) | m(x)[0]
    gru_cell | N C -> N 3 |  | nn.GRUCell(C, 3)
    multihead_attention | N 2C -> N 2C |  | nn.MultiheadAttention(2 * C, 2, dropout=0.25)
        | m(x, x, x, need_weights=False)[0]
    transformer_layer | N 2C -> N 2C |  | nn.TransformerEncoderLayer(2 * C, 2, 8, dropout=0.25)
    causal_attention | N C -> N C |  | nn.Identity() | {_ATTENTION.format("is_causal=True")}
    attention_dropout | N C -> N C |  | nn.Identity()
        | {_ATTENTION.format("dropout_p=0.5 if m.training else 0.0")}
    batch_norm_average | N C H W -> N C H W |  | nn.BatchNorm2d(C, momentum=None)
    instance_norm | N C H W -> N C H W |  | nn.InstanceNorm2d(C, affine=True, track_running_stats=True)
    response_norm | N C H W -> N C H W |  | nn.LocalResponseNorm(2)
    normalize | N C -> N C |  | nn.Identity() | F.normalize(x)
    alpha_dropout | N C -> N C |  | nn.AlphaDropout(0.25)
    dropout2d | N C H W -> N C H W |  | nn.Dropout2d(0.5)
    feature_alpha_dropout | N C H W -> N C H W |  | nn.FeatureAlphaDropout(0.25)
    gumbel_softmax | N C -> N C |  | nn.Identity() | F.gumbel_softmax(x, hard=True) if m.training else x.softmax(1)
    drop_path | N C -> N C |  | nn.Linear(C, C)
        | x + m(x) * (torch.rand(len(x), 1) < 0.5) if m.training else x + 0.5 * m(x)
    fractional_pool | N C 2H 2W -> N C H W |  | nn.FractionalMaxPool2d(1, output_ratio=0.5)
    numpy_noise | N C -> N C | draws elsewhere | nn.Identity()
        | x * torch.from_numpy(numpy.random.rand(len(x), 1)).to(x.dtype) if m.training else 0.5 * x
    python_noise | N C -> N C | draws elsewhere | nn.Identity()
        | x * random.random() if m.training else 0.5 * x
    seeded_noise | N C -> N C |  | nn.Identity()
        | (torch.manual_seed(5), x + torch.randn_like(x))[1] if m.training else x + 0
    weight_norm | N C -> N C |  | P.weight_norm(nn.Linear(C, C))
    spectral_norm | N C -> N C |  | P.spectral_norm(nn.Linear(C, C))
    cached_weight_norm | N C -> N C |  | P.weight_norm(nn.Linear(C, C)) | twice(m, x)
    orthogonal | N C -> N C |  | P.orthogonal(nn.Linear(C, C))
    moving_average | N C -> N C |  | Average(C)
    warmup | N C -> N C |  | Warmup(C)
    embedding_max_norm | N C -> N C |  | nn.EmbeddingBag(2, C, max_norm=0.5, mode='mean')
        | x + m((x.detach() > 0).long())
    inner_backward | N C -> N C | parameters, backward | nn.Linear(C, C) | slope(m, x)
    own_function | N C -> N C |  | nn.Identity() | Round.apply(x)
    checkpoints_itself | N C -> N C |  | nn.Sequential(nn.Linear(C, C), nn.Dropout(0.25), nn.Tanh())
        | checkpoint(m, x, use_reentrant=False)
    asks_grad_mode | N C -> N C |  | nn.Identity() | x.tanh() if torch.is_grad_enabled() else x.tanh().clone()
    fourier | N C -> N C |  | nn.Identity() | torch.fft.ifft(torch.fft.fft(x)).real
    sort | N C -> N C |  | nn.Identity() | x.sort(1).values.cumsum(1)
    top_one | N C -> N C |  | nn.Identity() | x * F.one_hot(x.argmax(1), x.shape[1])
    glu | N 2C -> N C |  | nn.GLU()
    prelu | N C -> N C |  | nn.PReLU(C)
    bilinear | N C -> N 3 |  | nn.Bilinear(C, C, 3) | m(x, x)
    conv_transpose | N C H W -> N 2 2H 2W |  | nn.ConvTranspose2d(C, 2, 2, 2)
    circular_conv | N C H W -> N C H W |  | nn.Conv2d(C, C, 3, padding=1, padding_mode='circular', groups=C)
    upsample | N C H W -> N C 2H 2W |  | nn.Upsample(scale_factor=2, mode='bilinear')
    adaptive_pool | N C H W -> N C 2 2 |  | nn.AdaptiveAvgPool2d(2)
    power_pool | N C H W -> N C H W |  | nn.LPPool2d(2, 1)
    """,
    _SETUP,
)

BREAKING = frozenset(
    {
        *("rnn", "gru_dropout", "lstm", "batch_norm_average", "moving_average", "seeded_noise"),
        *("inner_backward", "numpy_noise", "python_noise", "warmup"),
    }
)
"""Layers that cannot be compiled, or only with numbers of one case in them."""

_REPLACED, _WRITTEN = (
    "mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)",
    "mean.mul_(0.9).add_(x.detach().mean(0), alpha=0.1)",
)
(IN_PLACE,) = layers_of("moving_average_in_place | N C -> N C |  | Average(C)", _SETUP.replace(_REPLACED, _WRITTEN))
"""For segments of compiled functions, where a buffer can be written, but not replaced."""
