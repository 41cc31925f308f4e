"""Segments as transformers' GradientCheckpointingLayer, from which the blocks of its models derive."""

from functools import partial

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint as torch_checkpoint
from transformers.modeling_layers import GradientCheckpointingLayer

from rematch.frameworks.pytorch.wrappers import Block, Wrapper, blocks_of
from rematch.subjects.promises import promises_in


class LayerBlock(GradientCheckpointingLayer, Block):
    pass


def switched_on(root: nn.Module) -> None:
    """As gradient_checkpointing_enable() does it."""
    for block in blocks_of(root):
        block.gradient_checkpointing = True
        block._gradient_checkpointing_func = partial(torch_checkpoint, **block.options)


class Layer(GradientCheckpointingLayer):
    """Notes how it is called, and how often a hook on it runs."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 2, bias=False, dtype=torch.float64)
        nn.init.ones_(self.linear.weight)
        self.seen, self.hooked = [], 0
        self.register_forward_hook(self._note)

    def _note(self, *_):
        self.hooked += 1

    def forward(self, x, **keywords):
        self.seen.append({name: keywords.get(name) for name in ("use_cache", "past_key_values", "layer_past", "mask")})
        return torch.tanh(self.linear(x))


class Derived(Layer):
    """A class that derives from a layer, as that of FSDP2 does."""

    def forward(self, x, **keywords):
        return super().forward(x, **keywords) * 2


def enabled(layer, **options):
    layer.gradient_checkpointing = True
    layer._gradient_checkpointing_func = partial(torch_checkpoint, **{"use_reentrant": False, **options})
    return layer


def caches(checkpoint):
    """A checkpointed layer is given no cache, and all else as it was handed over, in both runs."""
    layer = checkpoint(Layer())
    x = torch.ones(1, 2, dtype=torch.float64)
    layer(x, use_cache=True, past_key_values=[1], layer_past=[2], mask=3).sum().backward()
    expected = {"use_cache": False, "past_key_values": None, "layer_past": None, "mask": 3}
    return str([expected] * 2), str(layer.seen)


def caches_that_are_only_read(checkpoint):
    """A layer that only reads its cache keeps it."""
    layer = checkpoint(Layer())
    layer._can_checkpoint_with_cache = True
    layer(torch.ones(1, 2, dtype=torch.float64), past_key_values=[1], layer_past=[2]).sum().backward()
    return str([([1], [2])] * 2), str([(seen["past_key_values"], seen["layer_past"]) for seen in layer.seen])


def evaluation(checkpoint):
    """A layer in evaluation mode, or that is switched off, is not checkpointed and keeps its cache."""
    off = checkpoint(Layer())
    off.gradient_checkpointing = False
    for layer in (layers := [checkpoint(Layer()).eval(), off]):
        layer(torch.ones(1, 2, dtype=torch.float64), use_cache=True).sum().backward()
    return str([[True]] * 2), str([[seen["use_cache"] for seen in layer.seen] for layer in layers])


def derived_classes(checkpoint):
    """A layer whose class derives from another one is recomputed once, with the gradients of a plain one."""
    layer = checkpoint(Derived())
    x = torch.ones(1, 2, dtype=torch.float64, requires_grad=True)
    layer(x).sum().backward()
    return [*x.grad.flatten().tolist(), len(layer.seen) - (layer.gradient_checkpointing is True), layer.hooked]


LAYER = Wrapper(
    "transformers layer",
    switched_on,
    block=LayerBlock,
    promises=promises_in(globals()),
    checkpoint_function="enabled",
    imports="from transformers.modeling_layers import GradientCheckpointingLayer",
    helpers=(enabled,),
    # In evaluation mode a layer is not checkpointed.
    lacks=("eval_mode",),
)
