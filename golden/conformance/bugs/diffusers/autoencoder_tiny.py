"""AutoencoderTiny: EncoderTiny does not scale images from [-1, 1] to [0, 1] with gradient checkpointing.

It scales them where it does not checkpoint, and leaves that out where it does. The library's own test of checkpointing skips
the parameters of encoder.layers, and compares mean losses to 1e-3. It came with diffusers#4682 (August 2023).

severity: silent, wrong outputs and gradients
versions: diffusers 0.42.1
promise: none; without gradient checkpointing the output is right
cause: diffusers/models/autoencoders/vae.py, EncoderTiny.forward: x.add(1).div(2) stands in the other branch alone
searched: 2026-08
"""

import sys

import torch
from diffusers import AutoencoderTiny

torch.manual_seed(0)
small = {"encoder_block_out_channels": (16, 16), "decoder_block_out_channels": (16, 16)}
model = AutoencoderTiny(**small, num_encoder_blocks=(1, 1), num_decoder_blocks=(1, 1)).train()
image = torch.rand(1, 3, 16, 16) * 2 - 1
latent = torch.rand(1, 4, 8, 8)


def is_wrong(name, half, x):
    model.disable_gradient_checkpointing()
    expected = half(x)[0].flatten()[:2]
    model.enable_gradient_checkpointing()
    got = half(x)[0].flatten()[:2]
    wrong = not torch.allclose(expected, got)
    print(f"{name}: {'WRONG' if wrong else 'right'}: output {got.tolist()}, expected {expected.tolist()}")
    return wrong


is_wrong("control: decode()", model.decode, latent)
sys.exit(is_wrong("encode()", model.encode, image))
