# Checkpointing fails where the plain run does not, or the other way round.
# Found at checkpointed run: expected no error, got RuntimeError: Trying to backward through the
# graph a second time (or directly access saved tensors after they have already been freed)
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


def picture(model, x):
    return model(pixel_values=x.view(len(x), 3, 8, 8)).last_hidden_state


def run(checkpointed):
    torch.manual_seed(0)
    x = torch.tensor([[-0.01]])
    m0 = Rows(picture, 1, 192, 8, 'mlcd_vision_model', hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=8, image_size=8, patch_size=4)

    def block(x):
        return m0(x)

    y = checkpoint(block, x, use_reentrant=False) if checkpointed else block(x)
    y.sum().backward()


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
