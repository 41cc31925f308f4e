# With checkpointing, a forward returns other outputs.
# Found at step 0, microbatch 0, output 0, element 2 (first of 1 that differ, of 3): expected
# -0.554486513 (0xbf0df2d4), got -0.554486573 (0xbf0df2d5)
# torch 2.15.0+cu132; run: python this_file.py
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

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
    x = torch.tensor([[0.16336377], [-0.7090486], [-0.1982669]])
    target = torch.tensor([[-0.2181536], [0.96003246], [0.9348469]])
    torch.manual_seed(3674104786)
    m0 = Rows(picture, 1, 192, 8, 'swin', image_size=8, patch_size=2, embed_dim=8, depths=[2], num_heads=[2], window_size=2, drop_path_rate=0.5)

    def block(x):
        return m0(x)

    torch.manual_seed(3674104786)
    y = checkpoint(block, x, use_reentrant=False) if checkpointed else block(x)
    loss = F.mse_loss(y, target)
    loss.backward()
    return {"output": y.detach(), "loss": loss.detach()}


plain, checkpointed = run(checkpointed=False), run(checkpointed=True)
different = [name for name in plain if not torch.equal(plain[name], checkpointed[name])]
for name, expected in plain.items():
    got = checkpointed[name]
    print(f"{name}\n  plain         {expected}\n  checkpointed  {got}")
    print("  difference   ", got - expected)
print("DIFFERENT: " + ", ".join(different) if different else "same")
sys.exit(1 if different else 0)
