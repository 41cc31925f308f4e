"""Puts objects back as they were: one function for each kind of object that a forward may change.
Tensors of other layouts are taken apart into strided ones, whose elements can all be compared."""

import array
import copy
import operator
import pickle
import random
import threading
import types
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterator, Mapping, MutableMapping
from contextvars import ContextVar
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from rematch.journal.storages import PARTS


def strided_parts(t: Tensor) -> list[Tensor] | None:
    """Returns the strided tensors that hold the elements of `t`; None if `t` is strided itself, or holds none."""
    if t.device.type == "meta":
        return None
    if t.is_nested:
        return list(t.unbind())
    if t.layout == torch.sparse_coo:
        # An uncoalesced tensor has many forms.
        whole = t.coalesce()
        return [whole.indices(), whole.values()]
    if t.layout in PARTS:
        return [getattr(t, name)() for name in PARTS[t.layout]]
    if t.layout != torch.strided:
        return [t.to_dense()]
    return [t.int_repr(), t.dequantize()] if t.is_quantized else None


def memory_of(t: Tensor) -> Tensor:
    """Returns each element in memory once if elements of `t` share memory, as expand() makes them do; else `t`."""
    if t.layout != torch.strided or t.is_nested or 0 not in t.stride() or t.numel() == 0:
        return t
    once = [n if stride else 1 for n, stride in zip(t.shape, t.stride(), strict=True)]
    return t.as_strided(once, t.stride())


Restore = Callable[[], Any]
"""Puts one object back as it was when this function was made."""
NOTHING = object()
"""Stands for a missing value."""
LOCKS = (type(threading.Lock()), type(threading.RLock()))


def restorer(value: Any) -> Restore | None:
    """Returns a function that puts a container, an array or a generator back as it is now; None for what cannot change.

    Raises TypeError if it can change but cannot be put back, such as a generator of Python.
    """
    if can_be_given_again(value):
        return None
    maker = next((make for kind, make in _RESTORERS if isinstance(value, kind)), None)
    return None if maker is None else maker(value)


def attributes_of(value: Any) -> dict[str, Any]:
    """Returns the attributes of an object, slots included."""
    found = dict(getattr(value, "__dict__", {}))
    for base in type(value).__mro__:
        slots = base.__dict__.get("__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else slots:
            if hasattr(value, slot) and not slot.startswith("__"):
                found[slot] = getattr(value, slot)
    return found


def content_of(cell: types.CellType) -> Any:
    """Returns the content of a closure cell; None if it is not set yet."""
    try:
        return cell.cell_contents
    except ValueError:
        return None


def function_restorer(function: types.FunctionType, variables: Mapping[str, Any]) -> Restore:
    """Returns a function that puts back what `function` closes over, and its globals `variables`."""
    cells = [(cell, content_of(cell)) for cell in function.__closure__ or ()]
    scope = function.__globals__
    held = (*(content for _, content in cells), *variables.values())
    again = {id(value): copy.deepcopy(value) for value in held if can_be_given_again(value)}
    put_back = _dictionary_restorer(function.__dict__)

    def restore() -> None:
        put_back()
        for cell, content in cells:
            if id(content) in again:
                cell.cell_contents = copy.deepcopy(again[id(content)])
            elif content_of(cell) is not content:
                cell.cell_contents = content
        for variable, value in variables.items():
            if id(value) in again:
                scope[variable] = copy.deepcopy(again[id(value)])
            elif scope.get(variable) is not value:
                scope[variable] = value

    return restore


def class_restorer(kind: type, kept: Mapping[str, Any]) -> Restore:
    """Returns a function that puts back the attributes `kept` of a class, and deletes new ones."""
    names = set(vars(kind))

    def restore() -> None:
        for name, value in kept.items():
            if vars(kind).get(name, NOTHING) is not value:
                setattr(kind, name, value)
        for name in set(vars(kind)) - names:
            delattr(kind, name)

    return restore


def tensor_restorer(t: Tensor) -> Restore:
    """Returns a function that puts back the elements, the gradient and the attributes of a leaf tensor."""
    if is_lazy(t):
        raise TypeError("an uninitialized parameter gets its shape by the first forward")
    if not t.is_leaf or t.device.type == "meta":
        return lambda: None
    memory, grad, flag = t.data, t.grad, t.requires_grad
    saved = memory_of(memory).clone()
    content = None if grad is None else grad.detach().clone()
    attributes = _dictionary_restorer(t.__dict__)
    hooks = {name: dict(getattr(t, name, None) or {}) for name in ("_backward_hooks", "_post_accumulate_grad_hooks")}

    def restore() -> None:
        for name, kept in hooks.items():
            now = getattr(t, name, None)
            if now is not None:
                now.clear()
                now.update(kept)
        if not t.is_leaf:
            # An operator in place gave it a history, or a reentrant region returned it.
            t.detach_()
        with torch.no_grad():
            if memory.layout == torch.strided and not _holds(memory):
                t.data = saved.clone().expand(memory.shape)
            else:
                # Another tensor may have lent its memory, as where weights are exchanged.
                t.data = memory
                memory_of(memory).copy_(saved)
            t.requires_grad_(flag)
            t.grad = grad
            if content is not None and grad is not None:
                grad.data.copy_(content)
        attributes()

    return restore


def _holds(t: Tensor) -> bool:
    """Whether a tensor's storage is still as large as the tensor needs it."""
    last = sum((n - 1) * stride for n, stride in zip(t.shape, t.stride(), strict=True))
    return t.numel() == 0 or t.untyped_storage().nbytes() >= (t.storage_offset() + last + 1) * t.element_size()


def object_restorer(value: Any) -> Restore:
    """Returns a function that puts back an object's attributes, and the dictionaries and sets among them."""
    attributes = attributes_of(value)
    inner = [_container_restorer(part) for part in attributes.values() if isinstance(part, (OrderedDict, dict, set))]
    own = getattr(value, "__dict__", {})
    put_back = _dictionary_restorer(own)
    slots = {name: part for name, part in attributes.items() if name not in own}
    given = {key: copy.deepcopy(part) for key, part in own.items() if can_be_given_again(part)}

    def restore() -> None:
        put_back()
        for slot, part in slots.items():
            if getattr(value, slot, NOTHING) is not part:
                setattr(value, slot, part)
        for key, part in given.items():
            own[key] = copy.deepcopy(part)
        for put in inner:
            put()

    return restore


def is_taken(lock: Any) -> bool:
    """Whether a lock is taken; a reentrant one, whether this thread has taken it."""
    return bool(lock.locked() if isinstance(lock, LOCKS[0]) else lock._is_owned())


def is_of_the_compiler(name: str) -> bool:
    """Whether torch.compile() sets an attribute of this name on tensors and functions for itself."""
    return name.startswith(("_dynamo", "_torchdynamo"))


def can_be_given_again(value: Any) -> bool:
    """Whether `value` is an iterator that can be copied, such as that of a list."""
    if not isinstance(value, Iterator) or isinstance(value, types.GeneratorType) or hasattr(value, "read"):
        return False
    try:
        pickle.dumps(value)
    except Exception:
        return False
    return True


def _dictionary_restorer(value: dict[Any, Any]) -> Restore:
    content = dict(dict.items(value))

    def restore() -> None:
        # The methods of dict itself, or of OrderedDict: other subclasses have others.
        if not _same(dict.keys(value), content.keys()) or not _same(dict.values(value), content.values()):
            base = OrderedDict if isinstance(value, OrderedDict) else dict
            base.clear(value)
            for key, part in content.items():
                base.__setitem__(value, key, part)

    return restore


def _container_restorer(value: Any) -> Restore:
    if isinstance(value, dict):
        return _dictionary_restorer(value)
    content = copy.copy(value)

    def restore() -> None:
        if isinstance(value, list):
            value[:] = content
        else:
            value.clear()
            (value.update if isinstance(value, set) else value.extend)(content)

    return restore


def _same(now: Collection[Any], then: Collection[Any]) -> bool:
    return len(now) == len(then) and all(map(operator.is_, now, then))


def _lock_restorer(value: Any) -> Restore:
    taken = is_taken(value)

    def restore() -> None:
        if taken:
            return
        if isinstance(value, LOCKS[0]):
            # Another thread may hold it for a moment. What is left of a run holds it for good.
            value.acquire(timeout=0.1)
            value.release()
        while is_taken(value):
            value.release()

    return restore


def _mapping_restorer(value: MutableMapping[Any, Any]) -> Restore:
    """Restores a mapping that is not a dict, such as WeakKeyDictionary."""
    content = list(value.items())

    def restore() -> None:
        now = list(value.items())
        if not all(_same(*pairs) for pairs in zip(now, content, strict=False)) or len(now) != len(content):
            value.clear()
            value.update(content)

    return restore


def _array_restorer(value: np.ndarray) -> Restore:
    content = value.copy()
    return lambda: np.copyto(value, content) if value.flags.writeable else None


def _numpy_restorer(value: np.random.Generator) -> Restore:
    bits, kept = value.bit_generator, copy.deepcopy(value.bit_generator.state)
    return lambda: setattr(bits, "state", copy.deepcopy(kept))


def _variable_restorer(value: ContextVar[Any]) -> Restore:
    try:
        content = value.get()
    except LookupError:
        return lambda: None
    return lambda: value.set(content)


def _iterator_restorer(value: Any) -> Restore:
    raise TypeError("what an iterator has given is gone")


_RESTORERS: tuple[tuple[Any, Callable[[Any], Restore]], ...] = (
    (LOCKS, _lock_restorer),
    ((torch.Generator, np.random.RandomState), lambda value: partial(value.set_state, value.get_state())),
    (np.random.Generator, _numpy_restorer),
    (random.Random, lambda value: partial(value.setstate, value.getstate())),
    (ContextVar, _variable_restorer),
    (np.ndarray, _array_restorer),
    ((array.array, bytearray), lambda value: partial(value.__setitem__, slice(None), copy.copy(value))),
    ((list, dict, set, deque), _container_restorer),
    (MutableMapping, _mapping_restorer),
    ((types.GeneratorType, Iterator), _iterator_restorer),
)
