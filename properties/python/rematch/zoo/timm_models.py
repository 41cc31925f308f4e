"""Builds models of timm: one for each of its modules, made small by the arguments of its classes."""

import inspect
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache, partial
from importlib import import_module
from typing import Any

import timm
import torch
from timm.models import _registry

from rematch.zoo import Built, NotBuilt
from rematch.zoo.narrow import narrow
from rematch.zoo.shrink import DROPOUT, HEADS, IMAGE, WIDTH
from rematch.zoo.trial import Batch, normal, size, trained

CLASSES = 10
ENOUGH = 1_000_000
"""A model with fewer parameters is small."""
_SIZES = (
    "test", "atto", "zepto", "femto", "pico", "nano", "micro", "xxs", "xxt", "xs", "xt", "tiny", "t", "mini", "s",
    "small",
)  # fmt: skip
_DROPS = ("drop_rate", "drop_path_rate", "attn_drop_rate", "proj_drop_rate", "pos_drop_rate")


@cache
def names() -> list[str]:
    """Returns the smallest model of each module, judged by its name."""
    found = defaultdict(list)
    for name in timm.list_models():
        found[_registry._model_to_module[name]].append(name)
    return sorted(min(models, key=_rank) for models in found.values())


def _rank(name: str) -> tuple[int, list[int], str]:
    words = name.split("_")
    size = min((_SIZES.index(word) for word in words if word in _SIZES), default=len(_SIZES))
    return size, [int(n) for n in re.findall(r"\d+", name)], name


def has(name: str) -> bool:
    """Whether timm has a model of this name, also one that names() leaves out."""
    return name in _registry._model_to_module


def build(name: str) -> Built:
    """Builds a model. Raises NotBuilt."""
    best: Built | None = None
    reasons: list[str] = []
    ways = [(how, factor) for factor in (4, 1) for how in (_smallest, _shallow, _with_dropout)]
    for how, factor in [(_smallest, 1), *ways]:
        if best is not None and (factor == 1 or size(best.model) < ENOUGH):
            break
        for built in trained([partial(_made, name, how, factor)], _batches, reasons):
            if best is None or size(built.model) < size(best.model):
                best = built
    if best is None:
        raise NotBuilt(reasons[-1])
    return best


def _batches(model: Any) -> Iterator[Batch]:
    channels, *_, most = model.default_cfg.get("input_size", (3, 224, 224))
    for extent in (IMAGE, 96, most):
        yield (normal(2, channels, extent, extent),), {}


def _made(name: str, how: Any, factor: int) -> Any:
    """Calls the function that makes the model, and changes the arguments that it passes to the class."""
    module = import_module(f"timm.models.{_registry._model_to_module[name]}")
    make = module.build_model_with_cfg

    def smaller(kind: Any, *args: Any, **kwargs: Any) -> Any:
        takes = {n: p.default for n, p in _parameters(kind).items()}
        return make(kind, *args, **{**kwargs, **how({**takes, **kwargs}, takes)})

    module.build_model_with_cfg = smaller
    try:
        torch.manual_seed(0)
        with narrow(factor):
            return timm.create_model(name, pretrained=False, num_classes=CLASSES)
    finally:
        module.build_model_with_cfg = make


def _parameters(kind: Any) -> dict[str, inspect.Parameter]:
    found = dict(inspect.signature(kind).parameters)
    if any(p.kind is inspect.Parameter.VAR_KEYWORD for p in found.values()) and isinstance(kind, type):
        for base in kind.__mro__[1:-1]:
            found = {**inspect.signature(base).parameters, **found}
    return found


def _with_dropout(given: Mapping[str, Any], takes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: DROPOUT for name in _DROPS if name in takes}


def _shallow(given: Mapping[str, Any], takes: Mapping[str, Any]) -> dict[str, Any]:
    new = _with_dropout(given, takes)
    for name in ("depth", "depths", "layers", "num_layers", "num_blocks", "stage_blocks"):
        if name in takes and (value := given[name]):
            if isinstance(value, int):
                new[name] = min(value, 2)
            elif isinstance(value, (list, tuple)) and all(isinstance(v, int) for v in value):
                new[name] = type(value)(min(v, 1 if len(value) > 2 else 2) for v in value)
    if "img_size" in takes:
        new["img_size"] = IMAGE
    return new


def _smallest(given: Mapping[str, Any], takes: Mapping[str, Any]) -> dict[str, Any]:
    new = _shallow(given, takes)
    for name, value in given.items():
        if name not in takes or isinstance(value, bool):
            continue
        if re.search(r"num_heads$|^heads$", name):
            new[name] = _each(value, lambda v: min(v, HEADS))
        elif re.search(r"^(embed_|hidden_)?dims?$|embed_dims$|^channels$|^widths$|^stage_dims$", name):
            least = min(value) if isinstance(value, (list, tuple)) and value else value
            to = WIDTH if value is least else 16
            if isinstance(least, int) and least > 16:
                new[name] = _each(value, lambda v, least=least, to=to: v * to // least)
    return new


def _each(value: Any, to: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(_each(v, to) for v in value)
    return to(value) if isinstance(value, int) else value
