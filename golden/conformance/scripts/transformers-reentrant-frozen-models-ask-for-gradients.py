# With checkpointing, a value requires grad that should not, or the other way round.
# Found at step 0, microbatch 0, layer 0 (custom), output 0: expected requires no grad, got
# requires grad
# torch 2.15.0+cu132; run: python this_file.py
import sys

import torch
import torch.nn as nn

from torch import Tensor, nn
from transformers import PreTrainedModel


def held_by(function):
    parts = [cell.cell_contents for cell in function.__closure__ or ()]
    within = [held_by(part) for part in parts if hasattr(part, "__closure__")]
    return sum(within, [part for part in parts if isinstance(part, (Tensor, nn.Module))])


def checkpoint(function, *inputs, use_reentrant, **options):
    for part in held_by(function):
        if isinstance(getattr(part, "model", None), PreTrainedModel):
            part.model.activation_checkpointing_enable(dict(use_reentrant=True, **options))
    return function(*inputs)
from transformers import AutoConfig, AutoModel


class Rows(nn.Module):
    def __init__(self, read, columns, size, width, family, **config):
        super().__init__()
        config = AutoConfig.for_model(family, **config)
        self.read, self.model = read, AutoModel.from_config(config)
        self.first, self.last = nn.Linear(columns, size), nn.Linear(width, columns)

    def forward(self, x):
        return x + self.last(self.read(self.model, self.first(x)).mean(1))


def numbers(model, x):
    return model(input_ids=x.view(len(x), 4, -1).argmax(2)).last_hidden_state


def run(checkpointed):
    torch.manual_seed(0)
    x = torch.randn(2, 2)
    linear = nn.Linear(2, 5)
    m0 = Rows(numbers, 2, 36, 8, 'roformer', hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=8, vocab_size=9, embedding_size=8, is_decoder=True).requires_grad_(False).eval()
    flags = {}

    def block(x):
        x = m0(x)
        flags.setdefault("custom 0, output 0", x.requires_grad)
        return x

    y = checkpoint(block, x, use_reentrant=False) if checkpointed else block(x)
    y = linear(y)
    flags.setdefault("linear 1, output 0", y.requires_grad)
    loss = y.sum()
    if loss.requires_grad:
        loss.backward()
    return {
        "custom 0, output 0 requires grad": flags["custom 0, output 0"],
        "linear 1, output 0 requires grad": flags["linear 1, output 0"],
        "output 0 requires grad": y.requires_grad,
    }


plain, checkpointed = run(checkpointed=False), run(checkpointed=True)
for name, got in checkpointed.items():
    print(f"{name}\n  plain         {plain[name]}\n  checkpointed  {got}")
expected = {'custom 0, output 0 requires grad': False}
print("expected:", expected)
different = [name for name in expected if checkpointed[name] != expected[name]]
print("DIFFERENT: " + ", ".join(different) if different else "same")
sys.exit(1 if different else 0)
