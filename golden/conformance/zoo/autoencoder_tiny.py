"""diffusers: AutoencoderTiny computes something else with gradient checkpointing: wrong outputs, wrong gradients, no error.

EncoderTiny.forward() scales images from [-1, 1] to [0, 1] where it does not checkpoint, and leaves that out where it does.
Prints "wrong" for diffusers 0.42.1.
"""

import torch
from diffusers import AutoencoderTiny

torch.manual_seed(0)
small = {"encoder_block_out_channels": (16, 16), "decoder_block_out_channels": (16, 16)}
blocks = {"num_encoder_blocks": (1, 1), "num_decoder_blocks": (1, 1)}
model = AutoencoderTiny(**small, **blocks).train()
image = torch.rand(1, 3, 16, 16) * 2 - 1


def step(checkpointed):
    (model.enable_gradient_checkpointing if checkpointed else model.disable_gradient_checkpointing)()
    model.zero_grad()
    latents = model.encode(image).latents
    latents.square().mean().backward()
    return latents.detach(), model.encoder.layers[0].weight.grad.clone()


for name, plain, again in zip(("latents", "gradient"), step(False), step(True)):
    off = (plain - again).abs().max()
    print(name, "right" if torch.allclose(plain, again) else f"wrong by {off:.2g}, the largest is {plain.abs().max():.2g}")
