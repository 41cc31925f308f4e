"""ChromaTransformer2DModel drops attention_mask in its single blocks with gradient checkpointing.

The checkpointed branch of the single blocks hands over everything but the mask. Masked tokens then take part in attention.

severity: silent, wrong outputs and gradients
versions: diffusers 0.42.1
promise: none; without gradient checkpointing the output is right
cause: diffusers/models/transformers/transformer_chroma.py, ChromaTransformer2DModel.forward: the single blocks' call of
    _gradient_checkpointing_func has no attention_mask
thread: near https://github.com/huggingface/diffusers/issues/13619
"""

import sys

import torch
from diffusers import ChromaTransformer2DModel

torch.manual_seed(0)
heads = {"num_attention_heads": 2, "attention_head_dim": 16, "axes_dims_rope": (4, 4, 8), "joint_attention_dim": 32}
sizes = {"in_channels": 4, "num_layers": 1, "num_single_layers": 1, "approximator_num_channels": 64}
model = ChromaTransformer2DModel(**heads, **sizes, approximator_hidden_dim=32, approximator_layers=1).train()
image, text = torch.randn(1, 16, 4), torch.randn(1, 6, 32)
mask = torch.tensor([[True] * 3 + [False] * 3 + [True] * 16])


def output(checkpointed, mask):
    (model.enable_gradient_checkpointing if checkpointed else model.disable_gradient_checkpointing)()
    places = {"img_ids": torch.zeros(16, 3), "txt_ids": torch.zeros(6, 3)}
    return model(image, text, torch.tensor([0.5]), **places, attention_mask=mask).sample.flatten()[:2]


def is_wrong(name, mask):
    expected, got = output(False, mask), output(True, mask)
    wrong = not torch.allclose(expected, got)
    print(f"{name}: {'WRONG' if wrong else 'right'}: output {got.tolist()}, expected {expected.tolist()}")
    return wrong


is_wrong("control: no mask", None)
sys.exit(is_wrong("a mask", mask))
