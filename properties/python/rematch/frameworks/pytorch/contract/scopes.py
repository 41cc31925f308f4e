"""Random state, autocast, device scopes, device types: what a recomputation finds, and leaves."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch._subclasses import FakeTensorMode
from torch.utils import checkpoint as api

from rematch.frameworks.pytorch.contract import promise as p

promises: list[p.Promise] = []


def _backward(out: Tensor, x: Tensor) -> Tensor:
    x.grad = None
    out.sum().backward()
    assert x.grad is not None
    return x.grad


@p.promise(promises)
def random_state() -> None:
    """The RNG state of the forward is stashed and restored for the recomputation, after which the
    state is as before; preserve_rng_state=False omits that."""
    x = p.leaf()
    for reentrant in p.BOTH:
        for given, kept in (
            ({}, True),
            ({"preserve_rng_state": True}, True),
            ({"preserve_rng_state": False}, False),
        ):
            masks: list[Tensor] = []

            def function(x: Tensor, masks: list[Tensor] = masks) -> Tensor:
                masks.append(torch.rand(3))
                return (x * masks[-1]).sin()

            p.seeded(11)
            out = api.checkpoint(function, x, use_reentrant=reentrant, **given)
            after_forward = torch.get_rng_state()
            torch.rand(7)
            before = torch.get_rng_state()
            got = _backward(out, x)
            p.equal(torch.equal(masks[0], masks[1]), kept, f"equal draws with {given}")
            p.equal(torch.equal(before, torch.get_rng_state()), kept, f"state unmoved with {given}")
            p.equal(got, p.gradient((x * masks[1]).sin(), x), "gradient")
            p.seeded(11)
            p.equal(torch.rand(3), masks[0], "draws of the forward")
            p.equal(torch.get_rng_state(), after_forward, "state after the forward")


@p.promise(promises)
def autocast() -> None:
    """A recomputation runs under the autocast settings of its forward, whatever those of the
    backward are."""
    x = p.leaf()

    def seen() -> tuple[Any, ...]:
        return (
            torch.is_autocast_enabled("cpu"),
            torch.get_autocast_dtype("cpu"),
            torch.is_autocast_cache_enabled(),
        )

    settings = [
        {"enabled": True, "dtype": torch.bfloat16},
        {"enabled": True, "dtype": torch.float16, "cache_enabled": False},
        {"enabled": False, "dtype": torch.float16},
        {"enabled": True, "dtype": torch.bfloat16, "cache_enabled": False},
    ]
    for reentrant in p.BOTH:
        for i, inside in enumerate(settings):
            found: list[Any] = []

            def function(x: Tensor, found: list[Any] = found) -> Tensor:
                found.append(seen())
                return x.sin()

            with torch.autocast("cpu", **inside):
                out = api.checkpoint(function, x, use_reentrant=reentrant)
            with torch.autocast("cpu", **settings[i - 1]):
                before = seen()
                _backward(out, x)
                p.equal(seen(), before, "settings after the backward")
            p.equal(len(found), 2, "executions")
            p.equal(found[1], found[0], "settings of the recomputation")


@p.promise(promises)
def grad_mode() -> None:
    """The recomputation records, and the forward of the reentrant variant does not."""
    x = p.leaf()
    for reentrant in p.BOTH:
        found: list[bool] = []

        def function(x: Tensor, found: list[bool] = found) -> Tensor:
            found.append(torch.is_grad_enabled())
            return x.sin()

        total = api.checkpoint(function, x, use_reentrant=reentrant).sum()
        with torch.no_grad():
            total.backward()
            p.equal(torch.is_grad_enabled(), False, "grad mode after the backward")
        p.equal(found, [not reentrant, True], "grad mode of each execution")


@p.promise(promises, when=p.RECENT)
def device_scopes() -> None:
    """With use_reentrant=False, a recomputation respects the innermost device scope of its forward,
    and leaves that of the backward alone."""
    x = p.leaf()
    for outer, inner, wanted in (
        (None, None, "cpu"),
        ("meta", None, "meta"),
        ("meta", "cpu", "cpu"),
        ("cpu", "meta", "meta"),
    ):
        found: list[str] = []

        def function(x: Tensor, found: list[str] = found) -> Tensor:
            found.append(torch.empty(1).device.type)
            return x.sin()

        def run(scopes: list[str | None], function: Any = function) -> Tensor:
            if not scopes:
                return api.checkpoint(function, x, use_reentrant=False)
            if scopes[0] is None:
                return run(scopes[1:])
            with torch.device(scopes[0]):
                return run(scopes[1:])

        out = run([outer, inner])
        p.equal(torch.empty(1).device.type, "cpu", "device after the forward")
        if outer is None:
            p.gradient(out, x)
        else:
            with torch.device("meta" if wanted == "cpu" else "cpu"):
                before = torch.empty(1).device.type
                torch.autograd.grad(out, x, torch.ones(3, device="cpu"))
                p.equal(
                    torch.empty(1).device.type, before, "device in the scope, after the backward"
                )
        p.equal(torch.empty(1).device.type, "cpu", "device after the backward")
        p.equal(found, [wanted, wanted], f"device of each execution, {inner} within {outer}")


@p.promise(promises)
def other_thread() -> None:
    """A backward may run in another thread than its forward, which finds settings and draws of the
    forward."""
    x = p.leaf()
    for reentrant in p.BOTH:
        found: list[Any] = []

        def function(x: Tensor, found: list[Any] = found) -> Tensor:
            found.append((torch.is_autocast_enabled("cpu"), torch.rand(3).tolist()))
            return x.sin()

        with torch.autocast("cpu", torch.bfloat16), api.set_checkpoint_early_stop(True):
            out = api.checkpoint(function, x, use_reentrant=reentrant)
        thread = threading.Thread(target=lambda o=out, f=found: f.append(_backward(o, x)))
        thread.start()
        thread.join()
        p.equal(len(found), 3, "executions, and the end of the thread")
        p.equal(found[1], found[0], "autocast and draws of the recomputation")
        p.equal(found[2], x.cos().detach(), "gradient")


@p.promise(promises)
def meta_tensors() -> None:
    """Tensors without data can be checkpointed."""
    for reentrant in p.BOTH:
        x = torch.empty(3, device="meta", requires_grad=True)
        out = api.checkpoint(lambda x: x.sin().cos(), x, use_reentrant=reentrant)
        got = _backward(out, x)
        p.equal((got.device.type, got.shape), ("meta", x.shape), "device and shape of the gradient")


@contextmanager
def _default_device_type(name: str) -> Iterator[None]:
    before = api.DefaultDeviceType._default_device_type
    try:
        api.DefaultDeviceType.set_device_type(name)
        yield
    finally:
        api.DefaultDeviceType._default_device_type = before


@p.promise(promises)
def default_device_type() -> None:
    """DefaultDeviceType.get_device_type() is what set_device_type() was given, "cuda" by
    default."""
    for name in ("cpu", "meta"):
        with _default_device_type(name):
            p.equal(api.DefaultDeviceType.get_device_type(), name, "device type")
    with _default_device_type("cpu"):
        api.DefaultDeviceType.set_device_type()
        p.equal(api.DefaultDeviceType.get_device_type(), "cuda", "device type")


@p.promise(promises)
def device_states() -> None:
    """get_device_states() ignores tensors on the CPU and what is no tensor; set_device_states()
    sets the states of the devices by the module of their type."""
    with _default_device_type("cpu"):
        p.equal(api.get_device_states(p.leaf(), 3, [p.leaf()]), ([], []), "devices and states")
        api.set_device_states([], [])
    with _default_device_type("meta"):
        api.set_device_states([0], [None])
    api.set_device_states([0], [None], device_type="meta")
    with _other_device() as device:
        api.set_device_states([1, 0], ["first", "second"], device_type=device.__name__)
        p.equal(device.log, [(1, "first"), (0, "second")], "states that were set")
        device.log.clear()
        with _default_device_type(device.__name__):
            api.set_device_states([2], ["third"])
            p.equal(device.log, [(2, "third")], "states that were set")
            p.equal(api.get_device_states(p.leaf()), ([], []), "devices and states")


@p.promise(promises)
def device_random_states() -> None:
    """The RNG states of the devices of all tensors among the args are stashed, and restored for the
    recomputation, after which they are as before."""
    with _other_device() as device, FakeTensorMode():
        x = p.leaf()
        on_one, on_two = (torch.empty(3, device=f"{device.__name__}:{i}") for i in (1, 2))
        given = (on_two, 3, [p.leaf(), {"nested": on_one}])
        forward = dict(device.states)
        p.equal(api.get_device_states(*given), ([2, 1], ["state 2", "state 1"]), "devices, states")
        for reentrant in p.BOTH:
            for options, kept in (({}, True), ({"preserve_rng_state": False}, False)):
                found: list[Any] = []

                def function(x: Tensor, *_: Any, found: list[Any] = found) -> Tensor:
                    found.append(dict(device.states))
                    return x.sin()

                device.states = dict(forward)
                out = api.checkpoint(function, x, *given, use_reentrant=reentrant, **options)
                device.states[1], device.states[2] = "later 1", "later 2"
                before = dict(device.states)
                _backward(out, x)
                p.equal(device.states, before, "states after the backward")
                wanted = [forward, forward if kept else before]
                p.equal(found, wanted, f"states of each execution with {options}")


@p.promise(promises)
def several_device_types() -> None:
    """Tensor arguments on two types of devices beside the CPU are warned of."""
    with _other_device() as device, FakeTensorMode(), torch.no_grad():
        other = torch.empty(3, device=f"{device.__name__}:1")
        meta, x = torch.empty(3, device="meta"), p.leaf()
        for reentrant in p.BOTH:
            for given, warned in (
                ((x, other, 3), False),
                ((other, [other]), False),
                ((x, meta), False),
                ((x, other, meta), True),
                ((meta, {"k": other}), True),
            ):
                words = "at least two types of devices", "Device types: ['meta', 'privateuseone']"
                with warnings.catch_warnings(record=True) as seen:
                    warnings.simplefilter("always")
                    api.checkpoint(lambda *_: x, *given, use_reentrant=reentrant)
                texts = [str(w.message) for w in seen if "two types of devices" in str(w.message)]
                p.equal(len(texts) > 0, warned, f"a warning for {given}")
                for text in texts:
                    first = next(
                        t for t in (given[0], given[1]) if isinstance(t, Tensor) and t is not x
                    )
                    p.said(text, *words, f"first device type: {first.device.type}")


@p.promise(promises)
def device_initialized_late() -> None:
    """A device of the default type must not be initialized within a non-reentrant segment whose
    random state is stashed."""
    x = p.leaf()
    with _other_device() as device, _default_device_type(device.__name__):

        def starts(x: Tensor) -> Tensor:
            device._initialized = True
            return x.sin()

        for initialized, preserve in ((True, True), (True, False), (False, False)):
            device._initialized = initialized
            out = api.checkpoint(starts, x, use_reentrant=False, preserve_rng_state=preserve)
            p.equal(p.gradient(out, x), x.cos().detach(), "gradient")
        device._initialized = False
        with p.raises(RuntimeError, "device state was initialized in the forward pass"):
            api.checkpoint(starts, x, use_reentrant=False)
        for initialized in p.BOTH:
            device._initialized = initialized
            for reentrant in p.BOTH:
                out = api.checkpoint(torch.sin, x, use_reentrant=reentrant)
                p.equal(_backward(out, x), x.cos().detach(), "gradient")


class _Device(ModuleType):
    """As much of the module of a device as checkpointing asks for."""

    def __init__(self) -> None:
        super().__init__("privateuseone")
        self.begin()

    def begin(self) -> None:
        """Forgets what was done to it."""
        self._initialized = True
        self.log: list[Any] = []
        self.states = {index: f"state {index}" for index in range(3)}
        self._current: list[int] = []

    @contextmanager
    def device(self, index: int) -> Iterator[None]:
        self._current.append(index)
        yield
        self._current.pop()

    def get_rng_state(self, index: int | None = None) -> str:
        return self.states[self._current[-1] if index is None else index]

    def set_rng_state(self, state: Any, index: int | None = None) -> None:
        index = self._current[-1] if index is None else index
        self.states[index] = state
        self.log.append((index, state))

    def device_count(self) -> int:
        return 3

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16]


_OTHER = _Device()
"""PyTorch remembers the modules of devices: there must be no other one later."""


@contextmanager
def _other_device() -> Iterator[_Device]:
    """A type of device that nothing lies on, known to PyTorch by a module as any other."""
    _OTHER.begin()
    setattr(torch, _OTHER.__name__, _OTHER)
    try:
        yield _OTHER
    finally:
        delattr(torch, _OTHER.__name__)
