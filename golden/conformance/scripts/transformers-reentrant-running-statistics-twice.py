# With checkpointing, running statistics are not updated once per forward.
# Found at step 0, buffer 0 (layer 0 all), element 2 (first of 34 that differ, of 274): expected
# -0.014548711478710175 (0xbf8dcbb700000000), got -0.027642551809549332 (0xbf9c4e5440000000)
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


def sound(model, x):
    # The model sets a flag of what it is given.
    return model(input_values=x.detach()).last_hidden_state


def run(checkpointed):
    torch.manual_seed(0)
    x = torch.tensor([[-2.96]])
    m0 = Rows(sound, 1, 40, 8, 'wav2vec2-conformer', hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=8, conv_dim=[8], conv_kernel=[4], conv_stride=[4], num_feat_extract_layers=1, num_conv_pos_embeddings=4, num_conv_pos_embedding_groups=2, mask_time_prob=0.0, layerdrop=0.25, position_embeddings_type='rotary')

    def block(x):
        return m0(x)

    y = checkpoint(block, x, use_reentrant=False) if checkpointed else block(x)
    y.sum().backward()
    return {
        "m0.model.encoder.layers[1].conv_module.batch_norm.running_mean": m0.model.encoder.layers[1].conv_module.batch_norm.running_mean,
        "m0.model.encoder.layers[1].conv_module.batch_norm.running_var": m0.model.encoder.layers[1].conv_module.batch_norm.running_var,
        "m0.model.encoder.layers[1].conv_module.batch_norm.num_batches_tracked": m0.model.encoder.layers[1].conv_module.batch_norm.num_batches_tracked,
    }


plain, checkpointed = run(checkpointed=False), run(checkpointed=True)
different = [name for name in plain if not torch.equal(plain[name], checkpointed[name])]
for name, expected in plain.items():
    got = checkpointed[name]
    print(f"{name}\n  plain         {expected}\n  checkpointed  {got}")
    print("  difference   ", got - expected)
print("DIFFERENT: " + ", ".join(different) if different else "same")
sys.exit(1 if different else 0)
