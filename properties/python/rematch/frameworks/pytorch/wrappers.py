"""PyTorch's other ways to checkpoint, as functions with the signature of checkpoint()."""

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.distributed._composable import checkpoint as composable_checkpoint
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    CheckpointImpl,
    apply_activation_checkpointing,
    checkpoint_wrapper,
)


class _Block(nn.Module):
    """A segment as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self._function = function

    def forward(self, *values: Tensor) -> Any:
        return self._function(*values)


class _Model(nn.Module):
    """A model that holds a segment: wrappers are put around the modules within a model."""

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.block = block


def fsdp(function: Callable[..., Any], *values: Tensor, use_reentrant: bool, **options: Any) -> Any:
    """apply_activation_checkpointing() with checkpoint_wrapper(), as users of FSDP call them."""
    impl = CheckpointImpl.REENTRANT if use_reentrant else CheckpointImpl.NO_REENTRANT
    model = _Model(_Block(function))
    apply_activation_checkpointing(
        model,
        checkpoint_wrapper_fn=partial(checkpoint_wrapper, checkpoint_impl=impl, **options),
        check_fn=lambda module: isinstance(module, _Block),
    )
    return model.block(*values)


def composable(function: Callable[..., Any], *values: Tensor, use_reentrant: bool, **options: Any) -> Any:
    """torch.distributed._composable.checkpoint(), which has the non-reentrant variant only."""
    block = _Block(function)
    composable_checkpoint(block, use_reentrant=use_reentrant, **options)
    return block(*values)


WRAPPERS: dict[str, Callable[..., Any]] = {"fsdp": fsdp, "composable": composable}
