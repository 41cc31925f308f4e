"""diffusers: ChromaTransformer2DModel drops attention_mask in half of its blocks with gradient checkpointing.

The checkpointed branch of its single blocks hands over everything but the mask. Masked tokens then take part in attention:
wrong outputs and gradients, no error. Prints "wrong" for diffusers 0.42.1, "right" without a mask.
"""

import torch
from diffusers import ChromaTransformer2DModel

torch.manual_seed(0)
heads = {"num_attention_heads": 2, "attention_head_dim": 16, "axes_dims_rope": (4, 4, 8), "joint_attention_dim": 32}
sizes = {"in_channels": 4, "num_layers": 1, "num_single_layers": 1, "approximator_num_channels": 64}
model = ChromaTransformer2DModel(**heads, **sizes, approximator_hidden_dim=32, approximator_layers=1).train()
image, text = torch.randn(1, 16, 4), torch.randn(1, 6, 32)
mask = torch.tensor([[True] * 3 + [False] * 3 + [True] * 16])


def step(checkpointed, mask):
    (model.enable_gradient_checkpointing if checkpointed else model.disable_gradient_checkpointing)()
    model.zero_grad()
    places = {"img_ids": torch.zeros(16, 3), "txt_ids": torch.zeros(6, 3)}
    out = model(image, text, torch.tensor([0.5]), **places, attention_mask=mask).sample
    out.square().mean().backward()
    return out.detach(), model.x_embedder.weight.grad.clone()


for given in (None, mask):
    for name, plain, again in zip(("output", "gradient"), step(False, given), step(True, given)):
        off = (plain - again).abs().max()
        says = "right" if torch.allclose(plain, again) else f"wrong by {off:.2g}, the largest is {plain.abs().max():.2g}"
        print("without a mask:" if given is None else "with a mask:", name, says)
