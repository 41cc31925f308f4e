"""diffusers: AudioLDM2UNet2DConditionModel hands its masks to the wrong parameters with gradient checkpointing.

The checkpointed branch hands over arguments by position, and leaves out added_cond_kwargs: all that follows comes one place
too early, so that the mask of the text is taken for that of the image. Prints what the step raises for diffusers 0.42.1,
"right" without a mask.
"""

import torch
from diffusers import AudioLDM2UNet2DConditionModel

torch.manual_seed(0)
down, up = ("DownBlock2D", "CrossAttnDownBlock2D"), ("CrossAttnUpBlock2D", "UpBlock2D")
widths = {"block_out_channels": (16, 32), "cross_attention_dim": 32, "attention_head_dim": 8, "norm_num_groups": 8}
model = AudioLDM2UNet2DConditionModel(down_block_types=down, up_block_types=up, layers_per_block=1, **widths).train()
sound, text = torch.randn(1, 4, 8, 8), torch.randn(1, 6, 32)
mask = torch.tensor([[1.0, 1, 1, 1, 0, 0]])


def step(checkpointed, mask):
    (model.enable_gradient_checkpointing if checkpointed else model.disable_gradient_checkpointing)()
    out = model(sound, torch.tensor([3]), text, encoder_attention_mask=mask).sample
    out.square().mean().backward()
    return out.detach()


for given in (None, mask):
    try:
        says = "right" if torch.allclose(step(False, given), step(True, given)) else "wrong"
    except RuntimeError as error:
        says = f"raises {error}"
    print("without a mask:" if given is None else "with a mask:", says)
