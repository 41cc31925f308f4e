"""How checkpoint() is called, and arguments and results of segments that are not just tensors."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from rematch.subjects.case import Choice

Values = tuple[Tensor, ...]

FEATURES = ("nested_inputs", "keyword_inputs", "emptied_inputs", "nested_outputs")
"""The features of cases that have any of it."""

FORM = "checkpoint"
DECORATOR = "decorator"
"""The option of a case whose segments checkpoint() decorates, and does not call."""

_OTHERS = {"scale": 2, "causal": True, "mask": None}
"""Arguments that are handed by keyword beside tensors."""


def keywords_of(choice: Choice) -> dict[str, Any]:
    """What checkpoint() is told by keyword. Usual values are left out: a user's own need not know every name."""
    found: dict[str, Any] = {"use_reentrant": choice.reentrant}
    if not choice.preserve_rng:
        found["preserve_rng_state"] = False
    if not choice.reentrant and choice.determinism == "none":
        found["determinism_check"] = "none"
    if not choice.reentrant and not choice.early_stop:
        found["early_stop"] = False
    return found


def nested(values: Sequence[Tensor]) -> dict[str, Any]:
    """Tensors among other things, as models hand on what several layers need."""
    return {"first": values[0], "rest": list(values[1:]), "count": len(values), "none": None}


def flat(structure: Any) -> Values:
    """The tensors of nested(). Raises ValueError where anything in it is not as it was made."""
    if isinstance(structure, dict) and list(structure) == ["first", "rest", "count", "none"]:
        first, rest, count, none = structure.values()
        values = (first, *rest)
        if type(rest) is list and (count, none) == (len(values), None):
            return values
    raise ValueError(f"a dictionary with first, rest, count and none expected, got {structure!r}")


def handed(form: str, values: Values) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments and the keyword arguments by which `values` are handed over."""
    if form == "dictionary":
        return (nested(values),), {}
    if form == "emptied":
        return ([*values],), {}
    if form == "keywords":
        by_position = values[:1] if len(values) > 1 else ()
        named = enumerate(values[len(by_position) :])
        return by_position, {f"value{i}": value for i, value in named} | _OTHERS
    return values, {}


def received(form: str, count: int, given: Sequence[Any], keywords: Mapping[str, Any]) -> Values:
    """Within the segment: the `count` tensors that handed() made arguments of. Raises IndexError
    where a list has too few, ValueError where anything else is not as it was handed over."""
    if form == "dictionary":
        return flat(*given)
    if form == "emptied":
        [held] = given
        return tuple([held.pop(0) for _ in range(count)])
    if form == "keywords":
        tensors = dict(keywords)
        others = {name: tensors.pop(name, "missing") for name in _OTHERS}
        if others != _OTHERS:
            raise ValueError(f"keyword arguments {_OTHERS} expected, got {others}")
        return (*given, *tensors.values())
    return tuple(given)
