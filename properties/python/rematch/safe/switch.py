"""Finds what turns a model's own checkpointing on and off."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

_METHODS = (
    ("gradient_checkpointing_enable", "gradient_checkpointing_disable"),
    ("enable_gradient_checkpointing", "disable_gradient_checkpointing"),
)
"""The methods of transformers and of diffusers."""
_SETTERS = ("set_grad_checkpointing", "set_gradient_checkpointing")
"""The methods of timm, and of older releases of other libraries."""
_WORDS = ("checkpoint", "ckpt", "remat", "recompute", "switch")
_NO_SWITCH = ("supports_", "can_", "has_", "is_")
"""Beginnings of the names of class flags that say what a class is able to do."""
_WITH_METHODS = ("torch", "transformers", "diffusers", "timm")
"""Libraries whose class flags are set by methods, together with the state that belongs to them."""
_MOST_FLAGS = 16


@dataclass(frozen=True)
class Switch:
    """Turns a model's own checkpointing on and off: `turn(model, True)` turns it on."""

    name: str
    turn: Callable[[Any, bool], None]


def known_switch(model: Any, options: dict[str, Any] | None = None) -> Switch | None:
    """Returns the switch of the library that the model or its parts come from, together with the model's own flag; None
    if there is neither. `options` of checkpoint() are passed on if the switch takes them."""
    found = _library_switch(model, options)
    if found is not None:
        return found
    parts = _library_parts(model, options)
    inside = {id(m) for part, _ in parts.values() for m in part.modules()}
    flags = [name for name in _flags(model, inside) if is_named_after_checkpointing(name)]
    own = flag_switch(flags[0]) if flags else None
    if not parts:
        return own

    def turn(model: Any, to: bool) -> None:
        if own is not None:
            own.turn(model, to)
        for name, (_, switch) in parts.items():
            switch.turn(model.get_submodule(name), to)

    names = [own.name] if own is not None else []
    return Switch(" and ".join(names + [f"{switch.name} of {name}" for name, (_, switch) in parts.items()]), turn)


def _library_parts(model: Any, options: dict[str, Any] | None) -> dict[str, tuple[nn.Module, Switch]]:
    """Returns the outermost submodules that have a library's switch, such as the backbone of a user's model."""
    found: dict[str, tuple[nn.Module, Switch]] = {}
    if not isinstance(model, nn.Module) or any(hasattr(model, on) for on, _ in _METHODS):
        # A library's model without the switch does not have it for a reason.
        return found
    for name, part in model.named_modules():
        switch = None if any(name.startswith(f"{outer}.") for outer in found) else _library_switch(part, options)
        if name and switch is not None:
            found[name] = part, switch
    return found


def _library_switch(model: Any, options: dict[str, Any] | None) -> Switch | None:
    for on, off in _METHODS:
        if hasattr(model, on) and hasattr(model, off) and getattr(model, "supports_gradient_checkpointing", True):
            return _methods(on, off, options)
    for name in _SETTERS:
        if callable(getattr(model, name, None)):
            return Switch(f"{name}()", lambda m, to, name=name: getattr(m, name)(to))
    return None


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
    """Returns the names of the flags of a model's modules that are on: one of them may be the switch."""
    on = [name for name, value in _flags(model).items() if value]
    return sorted(on, key=lambda name: not is_named_after_checkpointing(name))[:_MOST_FLAGS]


def is_named_after_checkpointing(flag: str) -> bool:
    """Whether a flag's name says that it turns checkpointing on."""
    return any(word in flag for word in _WORDS)


def flag_switch(name: str) -> Switch:
    """Returns a switch that sets the attribute `name` of every module that has it."""

    def turn(model: Any, to: bool) -> None:
        for module in model.modules() if isinstance(model, nn.Module) else ():
            if name in _flags_of(module):
                setattr(module, name, to)

    return Switch(f"the attribute {name}", turn)


def _flags(model: Any, but: Collection[int] = ()) -> dict[str, bool]:
    """Returns the flags of a model's modules, and whether each is on in any; `but`: the id() of modules to leave
    out."""
    found: dict[str, bool] = {}
    for module in model.modules() if isinstance(model, nn.Module) else ():
        for name, value in _flags_of(module).items() if id(module) not in but else ():
            found[name] = found.get(name, False) or value
    return found


def _flags_of(module: nn.Module) -> dict[str, bool]:
    """Returns the flags of a module, and those of its class that may be switches."""
    found: dict[str, bool] = {}
    for kind in reversed(type(module).__mro__):
        if kind.__module__.split(".")[0] not in _WITH_METHODS:
            found |= {name: v for name, v in vars(kind).items() if isinstance(v, bool) and name[0] != "_"}
    found = {name: v for name, v in found.items() if not name.startswith(_NO_SWITCH)}
    own = {name: v for name, v in module.__dict__.items() if isinstance(v, bool) and name[0] != "_"}
    return {name: value for name, value in (found | own).items() if name != "training"}
