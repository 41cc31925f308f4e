"""HunyuanImageTransformer2DModel raises a TypeError with gradient checkpointing.

Its checkpointed branch hands over attention_mask by keyword, which the function of enable_gradient_checkpointing() does not
take.

severity: error
versions: diffusers 0.42.1
promise: none; without gradient checkpointing the output is right
cause: diffusers/models/transformers/transformer_hunyuanimage.py: attention_mask= in a call of _gradient_checkpointing_func
searched: 2026-11
"""

import sys

import torch
from diffusers import HunyuanImageTransformer2DModel

torch.manual_seed(0)
heads = {"num_attention_heads": 2, "attention_head_dim": 16, "rope_axes_dim": (8, 8), "patch_size": (1, 1)}
sizes = {"in_channels": 4, "out_channels": 4, "num_layers": 1, "num_single_layers": 1, "num_refiner_layers": 1}
model = HunyuanImageTransformer2DModel(**heads, **sizes, text_embed_dim=32, text_embed_2_dim=None).train()
image, text, mask = torch.randn(1, 4, 8, 8), torch.randn(1, 6, 32), torch.ones(1, 6)


def is_wrong(name):
    try:
        got = model(image, torch.tensor([1.0]), text, mask).sample.flatten()[:2]
    except TypeError as error:
        print(f"{name}: WRONG: {error}")
        return True
    print(f"{name}: right: output {got.tolist()}")
    return False


is_wrong("control: not checkpointed")
model.enable_gradient_checkpointing()
sys.exit(is_wrong("checkpointed"))
