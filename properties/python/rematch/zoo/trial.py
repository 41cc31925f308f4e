"""Finds a model that can be trained with a batch, among several ways to make one."""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from rematch.zoo import Built, NotBuilt

MOST_PARAMETERS = 20_000_000
Batch = tuple[Sequence[Any], Mapping[str, Any]]


def first(ways: Iterable[Callable[[], Any]], batches: Callable[[Any], Iterable[Batch]]) -> Built:
    """Returns the first model of trained(). Raises NotBuilt with the first reason if there is none."""
    reasons: list[str] = []
    for built in trained(ways, batches, reasons):
        return built
    raise NotBuilt(reasons[0])


def trained(
    ways: Iterable[Callable[[], Any]], batches: Callable[[Any], Iterable[Batch]], reasons: list[str]
) -> Iterator[Built]:
    """Yields the models that `ways` make, each with the first batch that trains it. `reasons` gets why others fail."""
    for make in ways:
        try:
            model = make().train()
        except NotBuilt as error:
            reasons.append(str(error))
            continue
        except Exception as error:
            reasons.append(f"its constructor: {sentence(error)}")
            continue
        if size(model) > MOST_PARAMETERS:
            reasons.append(_too_large(model))
            continue
        for args, kwargs in batches(model):
            failure = fails(model, args, kwargs)
            if not failure:
                yield Built(model, args, kwargs, loss_of)
                break
            reasons.append(f"no batch was found that it takes: {failure}")


def seeded(make: Callable[[], Any]) -> Any:
    """Returns what make() makes, with weights that depend on nothing. Raises NotBuilt before a large model is made."""
    try:
        with torch.device("meta"):
            bare = make()
    except Exception:
        # Some models cannot be made without values.
        bare = None
    if bare is not None and size(bare) > MOST_PARAMETERS:
        raise NotBuilt(_too_large(bare))
    torch.manual_seed(0)
    return make()


def size(model: Any) -> int:
    """Returns how many parameters a model has."""
    return sum(p.numel() for p in model.parameters())


def _too_large(model: Any) -> str:
    return f"it has {size(model):,} parameters when it is as small as the rules make it"


def normal(*shape: int) -> torch.Tensor:
    """Returns normal random numbers, the same ones for the same shape."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(2))


def is_required(parameter: inspect.Parameter) -> bool:
    """Whether a call must pass this parameter."""
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return parameter.default is inspect.Parameter.empty and parameter.kind not in kinds


def fails(model: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Returns why a training step fails, in a sentence; empty if it does not."""
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
    return f"{type(error).__name__}: {' '.join(str(error).split())[:150]}"


def loss_of(out: Any) -> torch.Tensor:
    """Returns the loss that a model returns, or else a mean over all that it returns."""
    loss = getattr(out, "loss", None)
    if isinstance(loss, torch.Tensor) and loss.requires_grad:
        return loss.sum()
    tensors = (t for t in tree_leaves(out) if isinstance(t, torch.Tensor))
    parts = [t.float().square().mean() for t in tensors if t.is_floating_point() and t.requires_grad]
    return torch.stack(parts).sum() if parts else torch.zeros(())
