"""diffusers: HunyuanImageTransformer2DModel cannot be trained with gradient checkpointing: it raises a TypeError.

Its checkpointed branch hands over attention_mask by keyword, which the function of enable_gradient_checkpointing() does not
take. Prints the error for diffusers 0.42.1.
"""

import torch
from diffusers import HunyuanImageTransformer2DModel

torch.manual_seed(0)
heads = {"num_attention_heads": 2, "attention_head_dim": 16, "rope_axes_dim": (8, 8), "patch_size": (1, 1)}
sizes = {"in_channels": 4, "out_channels": 4, "num_layers": 1, "num_single_layers": 1, "num_refiner_layers": 1}
model = HunyuanImageTransformer2DModel(**heads, **sizes, text_embed_dim=32, text_embed_2_dim=None).train()
image, text, mask = torch.randn(1, 4, 8, 8), torch.randn(1, 6, 32), torch.ones(1, 6)

for checkpointed in (False, True):
    if checkpointed:
        model.enable_gradient_checkpointing()
    try:
        model(image, torch.tensor([1.0]), text, mask).sample.square().mean().backward()
        says = "right"
    except TypeError as error:
        says = f"raises {error}"
    print("checkpointed:" if checkpointed else "plain:", says)
