"""Arguments that were left at None, and arguments that a model passes to its modules with its own switch off and on."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

_TENSORS = ("mask", "position", "ids", "bias", "embed")
_CACHES = ("cache", "past")

Handed = dict[str, tuple[nn.Module, tuple[Any, ...], dict[str, Any]]]
"""Modules by name, each with the arguments of its first call."""


def left_at_none(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[str]:
    """Returns the names of tensor parameters that got None, or that got nothing and default to None."""
    try:
        signature = inspect.signature(function.forward if isinstance(function, nn.Module) else function)
        given = signature.bind_partial(*args, **kwargs).arguments
    except (TypeError, ValueError):
        return []
    optional = [p for p in signature.parameters.values() if p.default is None and given.get(p.name) is None]
    return [p.name for p in optional if "Tensor" in str(p.annotation) or any(word in p.name for word in _TENSORS)]


def worth_a_trial(name: str, given: Mapping[str, Tensor]) -> Iterator[Tensor]:
    """Yields values to try for the argument `name`, sized after the tensors `given`: masks that leave out an element of
    each sequence (True may mean keep or drop), and positions from 1 on (those that start over may mean packed sequences)."""
    sequences = [t for t in given.values() if t.dim() == 3 or (t.dim() == 2 and not t.is_floating_point())]
    if not sequences or not any(word in name for word in ("mask", "position")):
        return
    first = sequences[0]
    lengths = dict.fromkeys([first.shape[1], sum(t.shape[1] for t in sequences), *(t.shape[1] for t in sequences)])
    for n in lengths:
        if "position" in name:
            positions = torch.arange(1, n + 1, device=first.device)
            yield from (positions.expand(first.shape[0], n).clone(), positions)
            continue
        square = (1 - torch.eye(n, device=first.device)).roll(-1, 0)
        row = square[0].flip(0).expand(first.shape[0], n)
        for mask in (row, square, square.expand(first.shape[0], 1, n, n), row[:, None, None]):
            for dtype in (torch.bool, torch.long, torch.get_default_dtype()):
                yield mask.to(dtype, copy=True)


@contextmanager
def noting_arguments(model: nn.Module) -> Iterator[Handed]:
    """Within, notes the arguments of each module's first call, without hooks, which would be part of a run's state."""
    of, noted, call = {module: name for name, module in model.named_modules()}, Handed(), nn.Module.__call__

    def calls(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        if name := of.get(module, ""):
            noted.setdefault(name, (module, args, kwargs))
        return call(module, *args, **kwargs)

    with mock.patch.object(nn.Module, "__call__", calls):
        yield noted


def handed_otherwise(off: Handed, on: Handed) -> dict[str, str]:
    """Returns the outermost modules whose arguments differ between `off` and `on`, each with a text that says how.
    Neither a cache that is absent with the switch on nor another value of a floating-point tensor is a difference."""
    found: dict[str, str] = {}
    for name in off:
        if name not in on or any(name.startswith(f"{outer}.") for outer in found):
            continue
        if all(len(args) == 1 and not kwargs for _, args, kwargs in (off[name], on[name])):
            continue
        before, after = _bound(*off[name]), _bound(*on[name])
        pairs = {key: (value, after.get(key)) for key, value in before.items() if _differ(value, after.get(key))}
        if all(value is False and to is True for value, to in pairs.values()):
            # The switch itself, which is handed on.
            continue
        texts = [
            f"{key} is {_said(to)} with the switch on, {_said(value)} without"
            for key, (value, to) in pairs.items()
            if _there(to) or not any(word in key for word in _CACHES)
        ]
        if texts:
            found[name] = ", ".join(texts)
    return found


def _bound(module: nn.Module, args: Any, kwargs: Any) -> dict[str, Any]:
    try:
        bound = inspect.signature(module.forward).bind(*args, **kwargs)
    except (TypeError, ValueError):
        return {}
    bound.apply_defaults()
    return dict(bound.arguments)


def _there(value: Any) -> bool:
    return value is not None and value is not False


def _differ(before: Any, after: Any) -> bool:
    if isinstance(before, Tensor) and isinstance(after, Tensor):
        if (before.shape, before.dtype) != (after.shape, after.dtype):
            return True
        plain = not before.is_floating_point() and before.layout == torch.strided and not before.is_meta
        return plain and not torch.equal(before, after)
    if isinstance(before, (bool, int, float, str)) and isinstance(after, (bool, int, float, str)):
        return before != after
    return (_there(before), isinstance(before, Tensor)) != (_there(after), isinstance(after, Tensor))


def _said(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a tensor {str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
    return repr(value) if isinstance(value, (bool, int, float, str, type(None))) else f"a {type(value).__name__}"
