# With checkpointing, the gradient of the input is another one.
# Found at step 0, microbatch 0, gradient of the model input, element 0 (first of 6 that differ,
# of 8): expected -0.0344431698 (0xbd0d1448), got -0.0359080136 (0xbd131448)
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


def pair(model, x):
    x = x.view(len(x), 4, -1)
    return model(inputs_embeds=x, decoder_inputs_embeds=x).last_hidden_state


def run(checkpointed):
    torch.manual_seed(0)
    x = torch.tensor([[-0.27, 0.52, -0.24, -1.55, -0.23, -1.24, 1.32, 0.25]], requires_grad=True)
    m0 = Rows(pair, 8, 32, 8, 't5', d_model=8, d_kv=4, d_ff=8, num_layers=2, num_heads=2, vocab_size=9)
    for p in (*m0.parameters(),):
        p.grad = torch.ones_like(p)

    def block(x):
        return m0(x)

    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = checkpoint(block, x, use_reentrant=False) if checkpointed else block(x)
        loss = y.sum()
    loss.backward()
    return {"x.grad": x.grad}


plain, checkpointed = run(checkpointed=False), run(checkpointed=True)
different = [name for name in plain if not torch.equal(plain[name], checkpointed[name])]
for name, expected in plain.items():
    got = checkpointed[name]
    print(f"{name}\n  plain         {expected}\n  checkpointed  {got}")
    print("  difference   ", got - expected)
print("DIFFERENT: " + ", ".join(different) if different else "same")
sys.exit(1 if different else 0)
