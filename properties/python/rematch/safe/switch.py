"""How a model's own checkpointing is turned on and off."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

_METHODS = (
    ("gradient_checkpointing_enable", "gradient_checkpointing_disable"),
    ("enable_gradient_checkpointing", "disable_gradient_checkpointing"),
)
"""Of transformers and of diffusers."""
_SETTERS = ("set_grad_checkpointing", "set_gradient_checkpointing")
"""Of timm, and of older releases of others."""
_WORDS = ("checkpoint", "ckpt", "remat", "recompute", "switch")
_MOST_FLAGS = 16


@dataclass(frozen=True)
class Switch:
    """What turns a model's own checkpointing on and off: `turn(model, True)` turns it on."""

    name: str
    turn: Callable[[Any, bool], None]


def known_switch(model: Any, options: dict[str, Any] | None = None) -> Switch | None:
    """The switch of the library that the model comes from; `options` of checkpoint() where it takes them."""
    for on, off in _METHODS:
        if hasattr(model, on) and hasattr(model, off) and getattr(model, "supports_gradient_checkpointing", True):
            return _methods(on, off, options)
    for name in _SETTERS:
        if callable(getattr(model, name, None)):
            return Switch(f"{name}()", lambda m, to, name=name: getattr(m, name)(to))
    flags = [name for name in _flags(model) if is_named_after_checkpointing(name)]
    return flag_switch(flags[0]) if flags else None


def _methods(on: str, off: str, options: dict[str, Any] | None) -> Switch:
    takes_options = on == "gradient_checkpointing_enable" and options is not None
    given = {"gradient_checkpointing_kwargs": options} if takes_options else {}

    def turn(model: Any, to: bool) -> None:
        if to:
            getattr(model, on)(**given)
        else:
            getattr(model, off)()

    return Switch(f"{on}()", turn)


def flags_that_are_on(model: Any) -> Sequence[str]:
    """Names of the flags of a model's modules that are on: one of them may be the switch."""
    on = [name for name, value in _flags(model).items() if value]
    return sorted(on, key=lambda name: not is_named_after_checkpointing(name))[:_MOST_FLAGS]


def is_named_after_checkpointing(flag: str) -> bool:
    """Whether the name of a flag says that it turns checkpointing on."""
    return any(word in flag for word in _WORDS)


def flag_switch(name: str) -> Switch:
    """Sets the attribute `name` of every module that has it."""

    def turn(model: Any, to: bool) -> None:
        for module in model.modules() if isinstance(model, nn.Module) else ():
            if isinstance(module.__dict__.get(name), bool):
                setattr(module, name, to)

    return Switch(f"the attribute {name}", turn)


def _flags(model: Any) -> dict[str, bool]:
    found: dict[str, bool] = {}
    for module in model.modules() if isinstance(model, nn.Module) else ():
        for name, value in module.__dict__.items():
            if isinstance(value, bool) and name != "training" and not name.startswith("_"):
                found[name] = found.get(name, False) or value
    return found
