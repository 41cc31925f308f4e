"""AudioLDM2UNet2DConditionModel hands masks to the wrong parameters with gradient checkpointing, and raises.

The checkpointed branch hands over arguments by position, and leaves one out: all that follows comes one place too early, so
that the mask of the text is taken for that of the image.

severity: error
versions: diffusers 0.42.1
promise: none; without gradient checkpointing the output is right
cause: diffusers/pipelines/audioldm2/modeling_audioldm2.py: the calls of _gradient_checkpointing_func
thread: near https://github.com/huggingface/diffusers/issues/13602
"""

import sys

import torch
from diffusers import AudioLDM2UNet2DConditionModel

torch.manual_seed(0)
down, up = ("DownBlock2D", "CrossAttnDownBlock2D"), ("CrossAttnUpBlock2D", "UpBlock2D")
widths = {"block_out_channels": (16, 32), "cross_attention_dim": 32, "attention_head_dim": 8, "norm_num_groups": 8}
model = AudioLDM2UNet2DConditionModel(down_block_types=down, up_block_types=up, layers_per_block=1, **widths).train()
sound, text = torch.randn(1, 4, 8, 8), torch.randn(1, 6, 32)
mask = torch.tensor([[1.0, 1, 1, 1, 0, 0]])


def is_wrong(name, mask):
    model.disable_gradient_checkpointing()
    expected = model(sound, torch.tensor([3]), text, encoder_attention_mask=mask).sample
    model.enable_gradient_checkpointing()
    try:
        got = model(sound, torch.tensor([3]), text, encoder_attention_mask=mask).sample
    except RuntimeError as error:
        print(f"{name}: WRONG: {error}; without checkpointing the output is {expected.flatten()[:2].tolist()}")
        return True
    wrong = not torch.allclose(expected, got)
    print(f"{name}: {'WRONG' if wrong else 'right'}: output {got.flatten()[:2].tolist()}")
    return wrong


is_wrong("control: no mask", None)
sys.exit(is_wrong("a mask of the text", mask))
