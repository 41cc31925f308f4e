"""Whether a model can be trained with a batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

MOST_PARAMETERS = 20_000_000


def fails(model: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Why a step fails, in a sentence; empty where it does not."""
    torch.manual_seed(0)
    try:
        loss = loss_of(model(*args, **kwargs))
        if not loss.requires_grad:
            return "nothing that it returns has a gradient"
        if not torch.isfinite(loss):
            return "what it returns is not finite"
        loss.backward()
    except Exception as error:
        return sentence(error)
    finally:
        model.zero_grad()
    return ""


def sentence(error: BaseException) -> str:
    """An error in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:150]}"


def loss_of(out: Any) -> torch.Tensor:
    """The loss of a model, where it returns one, otherwise a mean over all that it returns."""
    loss = getattr(out, "loss", None)
    if isinstance(loss, torch.Tensor) and loss.requires_grad:
        return loss.sum()
    parts = [t.float().square().mean() for t in tensors(out) if t.is_floating_point() and t.requires_grad]
    return torch.stack(parts).sum() if parts else torch.zeros(())


def tensors(value: Any) -> Iterator[torch.Tensor]:
    """All tensors in a structure."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from tensors(part)
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from tensors(part)
